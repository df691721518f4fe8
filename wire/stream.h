// Streams: a stream belongs to one device, and its number says which.
//
// Device d has the numbers d * kStreamsPerDeviceMax … that + kStreamsPerDeviceMax - 1; the first of
// them is its default stream.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "wire/limits.h"

namespace rgpu::wire {

static_assert(limits::kStreamsMax == limits::kDevicesMax * limits::kStreamsPerDeviceMax);

// `index` is below limits::kStreamsPerDeviceMax.
[[nodiscard]] constexpr uint32_t stream_of(uint32_t device, uint32_t index) noexcept {
  return device * limits::kStreamsPerDeviceMax + index;
}
[[nodiscard]] constexpr uint32_t device_of_stream(uint32_t stream) noexcept {
  return stream / limits::kStreamsPerDeviceMax;
}
[[nodiscard]] constexpr uint32_t index_of_stream(uint32_t stream) noexcept {
  return stream % limits::kStreamsPerDeviceMax;
}

}  // namespace rgpu::wire
