// f16 and bf16 to single precision and back, in ways that vectorize.
#pragma once

#include "server/cuda/emulated/ptx_lanes.h"
#include "server/cuda/emulated/ptx_rounding.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {

struct Half16 {
  static constexpr const Format& kFormat = kHalfFormat;
  static constexpr uint16_t kExponent = 0x7c00;
  [[gnu::always_inline]] static float to_float(uint16_t h) {
    const uint32_t w = uint32_t{h} << 16;
    const uint32_t doubled = w + w;
    const float normal =
        std::bit_cast<float>((doubled >> 4) + (uint32_t{0xe0} << 23)) * 0x1.0p-112F;
    const float subnormal = std::bit_cast<float>((doubled >> 17) | (uint32_t{126} << 23)) - 0.5F;
    const uint32_t magnitude = std::bit_cast<uint32_t>(doubled < (1U << 27) ? subnormal : normal);
    return std::bit_cast<float>((w & 0x8000'0000) | magnitude);
  }
  [[gnu::always_inline]] static uint16_t from_float(float f) {
    const auto w = std::bit_cast<uint32_t>(f);
    // Multiplied in two steps, what is too large becomes infinity.
    float base = (std::bit_cast<float>(w & 0x7fff'ffff) * 0x1.0p+112F) * 0x1.0p-110F;
    const uint32_t doubled = w + w;
    const uint32_t bias =
        (doubled & 0xff00'0000) < 0x7100'0000 ? 0x7100'0000 : doubled & 0xff00'0000;
    base = std::bit_cast<float>((bias >> 1) + 0x0780'0000) + base;
    const auto bits = std::bit_cast<uint32_t>(base);
    const uint32_t number = ((bits >> 13) & 0x7c00) + (bits & 0xfff);
    return static_cast<uint16_t>(doubled > 0xff00'0000 ? 0x7fffU
                                                       : ((w & 0x8000'0000) >> 16) | number);
  }
};

struct Bfloat16 {
  static constexpr const Format& kFormat = kBfloatFormat;
  static constexpr uint16_t kExponent = 0x7f80;
  [[gnu::always_inline]] static float to_float(uint16_t h) {
    return std::bit_cast<float>(uint32_t{h} << 16);
  }
  [[gnu::always_inline]] static uint16_t from_float(float f) {
    const auto w = std::bit_cast<uint32_t>(f);
    const uint32_t rounded = (w + 0x7fff + ((w >> 16) & 1)) >> 16;
    return static_cast<uint16_t>((w & 0x7fff'ffff) > 0x7f80'0000 ? 0x7fffU : rounded);
  }
};

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
