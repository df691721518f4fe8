// EventMark: one recording of an event, and who asked when it is reached.
//
// Threading: reach() is called once, by whoever knows that the work before it is done; ask() by the
//            decode thread.
// Lifetime:  whoever may still reach or ask holds a reference.
// Errors:    ask() returns kExhausted when kRequestsMax are waiting.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "server/engine.h"
#include "wire/status.h"

namespace rgpu::server {

class EventMark {
 public:
  static constexpr size_t kRequestsMax = 1024;  // As many as a client may have pending.

  // All before it is done, at this time. The replies to those who asked.
  [[nodiscard]] std::vector<OutgoingReply> reach(int64_t time_ns);
  // The reply, if it was reached already; otherwise reach() returns it. kExhausted.
  [[nodiscard]] Result<std::optional<OutgoingReply>> ask(uint64_t request);

 private:
  std::mutex mutex_;
  std::optional<int64_t> time_ns_;
  std::vector<uint64_t> requests_;
};

// The clock of the CPU's marks.
[[nodiscard]] int64_t event_time_ns() noexcept;

}  // namespace rgpu::server
