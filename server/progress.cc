#include "server/progress.h"

namespace rgpu::server {

void Progress::open(uint64_t /*sequence*/) {
  const std::lock_guard lock(mutex_);
  runs_left_.push_back(1);
}

void Progress::add_run(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  ++runs_left_[sequence - applied_ - 1];
}

uint64_t Progress::close_one(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  --runs_left_[sequence - applied_ - 1];
  while (!runs_left_.empty() && runs_left_.front() == 0) {
    runs_left_.pop_front();
    ++applied_;
  }
  return applied_;
}

uint64_t Progress::applied() {
  const std::lock_guard lock(mutex_);
  return applied_;
}

}  // namespace rgpu::server
