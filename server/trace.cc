#include "server/trace.h"

#include <utility>

namespace rgpu::server {

void Trace::start() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  on_ = true;
}

void Trace::add(const wire::TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() < wire::kTraceEventsMax) events_.push_back(event);
}

std::vector<wire::TraceEvent> Trace::stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
  return std::exchange(events_, {});
}

}  // namespace rgpu::server
