// Trace: what a session's records took, from start() to stop().
//
// Threading: any thread. on() is one relaxed load.
// Errors:    none; what is over wire::kTraceEventsMax is not kept.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "wire/trace.h"

namespace rgpu::server {

class Trace {
 public:
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  void start();
  void add(const wire::TraceEvent& event);
  [[nodiscard]] std::vector<wire::TraceEvent> stop();

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::vector<wire::TraceEvent> events_;
};

}  // namespace rgpu::server
