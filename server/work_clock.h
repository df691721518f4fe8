// WorkClock: how long a session's executors have worked, and how long they waited for records.
//
// Threading: any thread. The two sum up to the time since the first begin().
#pragma once

#include <cstdint>
#include <mutex>

namespace rgpu::server {

class WorkClock {
 public:
  struct Times {
    uint64_t busy_ns = 0;
    uint64_t idle_ns = 0;
  };
  // An executor starts to work, or ends. Some executor working counts as busy.
  void begin() noexcept;
  void end() noexcept;
  [[nodiscard]] Times times() const noexcept;

 private:
  void advance(Times& times) const noexcept;

  mutable std::mutex mutex_;
  Times times_;
  uint64_t since_ns_ = 0;  // Of the last change; 0 before the first begin().
  uint32_t working_ = 0;
};

}  // namespace rgpu::server
