// Streams: which ring the ops of a thread go to, and how far each is known to be done.
//
// Each device has a default stream, 0; new_stream() deals out a pool of kPoolSize a device in turn,
// as CUDA does, so that a program may make as many as it likes. A stream costs nothing until it is
// used. A stream's number (wire/stream.h) is that of its ring and of the server's queue.
//
// Threading: the current streams are a thread's own; everything else may be called by any thread.
// Errors:    c10::Error for a stream that is none of ours, and what a wait of Client's raises.
#pragma once

#include <c10/core/Stream.h>

#include <array>
#include <cstdint>

#include "wire/stream.h"

namespace rgpu::backend {

inline constexpr uint32_t kPoolSize = 32;
static_assert(kPoolSize < limits::kStreamsPerDeviceMax);

// Its number.
[[nodiscard]] uint32_t stream_number(const c10::Stream& stream);
// The calling thread's current stream on each device. Read for every op: hence no function.
extern constinit thread_local std::array<uint8_t, limits::kDevicesMax> current_stream_ids;
[[nodiscard]] inline uint32_t current_stream(c10::DeviceIndex device) noexcept {
  const auto index = static_cast<uint8_t>(device);
  return wire::stream_of(index, current_stream_ids[index]);
}
void set_current_stream(const c10::Stream& stream);  // Of the stream's device.
[[nodiscard]] c10::StreamId new_stream(c10::DeviceIndex device) noexcept;

// Whether all that was issued on it is done. Never waits: it asks the server beside the program,
// and says no until the answer came. Raises what failed.
[[nodiscard]] bool query_stream(uint32_t stream);
// One wait each. Raise what failed.
void synchronize_stream(uint32_t stream);
void synchronize_devices();  // All of them.
// Whether the first `records` of the stream are known to be done. Asks nobody.
[[nodiscard]] bool is_done(uint32_t stream, uint64_t records);

}  // namespace rgpu::backend
