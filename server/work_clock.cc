#include "server/work_clock.h"

#include <chrono>

namespace rgpu::server {
namespace {

uint64_t now_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

void WorkClock::advance(Times& times) const noexcept {
  if (since_ns_ == 0) return;
  const uint64_t passed_ns = now_ns() - since_ns_;
  (working_ == 0 ? times.idle_ns : times.busy_ns) += passed_ns;
}

void WorkClock::begin() noexcept {
  const std::lock_guard lock(mutex_);
  if (working_ == 0) {
    advance(times_);
    since_ns_ = now_ns();
  }
  ++working_;
}

void WorkClock::end() noexcept {
  const std::lock_guard lock(mutex_);
  if (working_ == 1) {
    advance(times_);
    since_ns_ = now_ns();
  }
  --working_;
}

WorkClock::Times WorkClock::times() const noexcept {
  const std::lock_guard lock(mutex_);
  Times times = times_;
  advance(times);
  return times;
}

}  // namespace rgpu::server
