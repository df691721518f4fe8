// Tracer: is told what a session's I/O thread does.
//
// Threading: the I/O thread calls; it calls no more once Session::set_tracer() with another, or
//            with none, has returned and the batch under way is sent.
#pragma once

#include <chrono>
#include <cstdint>

namespace rgpu {

struct SentBatch {
  using Clock = std::chrono::steady_clock;
  uint64_t sequence = 0;
  uint64_t last_record = 0;  // Counted from 1 over all that was appended to the session's rings.
  uint32_t records = 0;
  uint64_t size_bytes = 0;  // Payload included.
  Clock::time_point began;  // The rings are drained,
  Clock::time_point ended;  // the socket has taken all of it.
};

class Tracer {
 public:
  virtual ~Tracer() = default;
  virtual void sent(const SentBatch& batch) noexcept = 0;
  // The server's acknowledgement of that batch and all before it came.
  virtual void applied(uint64_t sequence, SentBatch::Clock::time_point at) noexcept = 0;
};

}  // namespace rgpu
