// Streams: which ring the ops of a thread go to, and how far each is known to be done.
//
// Stream 0 is the default; new_stream() deals out a pool of kPoolSize in turn, as CUDA does, so
// that a program may make as many as it likes. A stream costs nothing until it is used.
//
// Threading: the current stream is a thread's own; everything else may be called by any thread.
// Errors:    c10::Error for a number that is none of ours, and what a wait of Client's raises.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace rgpu::backend {

inline constexpr uint32_t kPoolSize = 32;

// Its ring.
[[nodiscard]] uint32_t stream_number(c10::StreamId id);
// The ring of the calling thread's current stream. Read for every op: hence no function.
extern constinit thread_local uint32_t current_stream_number;
[[nodiscard]] inline uint32_t current_stream() noexcept { return current_stream_number; }
void set_current_stream(c10::StreamId id);
[[nodiscard]] c10::StreamId new_stream() noexcept;

// Whether all that was issued on it is done. Never waits: it asks the server beside the program,
// and says no until the answer came. Raises what failed.
[[nodiscard]] bool query_stream(uint32_t stream);
// One wait each. Raise what failed.
void synchronize_stream(uint32_t stream);
void synchronize_device();
// Whether the first `records` of the stream are known to be done. Asks nobody.
[[nodiscard]] bool is_done(uint32_t stream, uint64_t records);

}  // namespace rgpu::backend
