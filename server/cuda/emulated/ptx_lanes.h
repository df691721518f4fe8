// Loops over lanes, and arithmetic as PTX defines it: the tools of the handlers.
//
// The files that include this are compiled twice, for any x86-64 and for AVX2 with FMA, each in a
// namespace of its own (RGPU_PTX_VARIANT), so that no inline function of one ends up in the other.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "server/cuda/emulated/ptx_context.h"

#ifndef RGPU_PTX_VARIANT
#define RGPU_PTX_VARIANT generic
#endif

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {

template <typename F>
[[gnu::always_inline]] inline void for_lanes(uint32_t mask, F&& f) {
  if (mask == kAllLanes) {
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (uint32_t i = 0; i < kLanes; ++i) f(i);
  } else {
    for (uint32_t m = mask; m != 0; m &= m - 1) f(static_cast<uint32_t>(std::countr_zero(m)));
  }
}

// Bits of the lanes where f(lane) is true.
template <typename F>
[[gnu::always_inline]] inline uint32_t collect(uint32_t mask, F&& f) {
  uint32_t bits = 0;
  if (mask == kAllLanes) {
    alignas(32) uint8_t flags[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) flags[i] = f(i) ? 1 : 0;
    for (uint32_t i = 0; i < kLanes; i += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, flags + i, 8);
      // Gathers the lowest bit of each byte.
      bits |= static_cast<uint32_t>((eight * 0x0102'0408'1020'4080U) >> 56) << i;
    }
    return bits;
  }
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    bits |= (f(i) ? 1U : 0U) << i;
  }
  return bits;
}

[[gnu::always_inline]] inline void set_predicate(Context& context, Operand operand, uint32_t bits) {
  uint32_t* const row = context.row<uint32_t>(operand);
  *row = (*row & ~context.mask) | (bits & context.mask);
}

inline float flush(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits & 0x7f80'0000) == 0 ? bits & 0x8000'0000 : bits);
}

inline double flush(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  return std::bit_cast<double>((bits << 1 >> 53) == 0 ? bits & (uint64_t{1} << 63) : bits);
}

// Single precision has one NaN.
inline float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fff'ffffU); }
inline double canonical(double x) { return x; }

template <bool Ftz, typename T>
[[gnu::always_inline]] inline T input(T x) {
  if constexpr (Ftz) return flush(x);
  return x;
}

template <bool Ftz, bool Saturate, typename T>
[[gnu::always_inline]] inline T output(T x) {
  if constexpr (Ftz) x = flush(x);
  if constexpr (Saturate) return x > T{0} ? (x < T{1} ? x : T{1}) : T{0};  // NaN becomes 0.
  return canonical(x);
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
