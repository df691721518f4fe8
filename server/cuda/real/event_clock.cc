#include "server/cuda/real/event_clock.h"

#include <cmath>
#include <utility>

#include "server/cuda/driver.h"

namespace rgpu::server::cuda {
namespace {
constexpr int64_t kMoveAfterNs = 1'000'000'000;
}

EventClock::EventClock(const DriverSymbols& driver, Mark reference, int64_t time_ns)
    : driver_(driver), reference_(std::move(reference)), reference_time_ns_(time_ns) {}

int EventClock::time_of(const Mark& mark, int64_t& time_ns) {
  const std::lock_guard lock(mutex_);
  float milliseconds = 0;
  const int code = driver_.elapsed_time(&milliseconds, reference_->event, mark->event);
  if (code != kSuccess) return code;
  const int64_t since_ns = std::llround(static_cast<double>(milliseconds) * 1e6);
  time_ns = reference_time_ns_ + since_ns;
  if (since_ns > kMoveAfterNs) {
    reference_ = mark;
    reference_time_ns_ = time_ns;
  }
  return kSuccess;
}

}  // namespace rgpu::server::cuda
