#include "runtime/free_list.h"

namespace rgpu {

bool FreeList::add(wire::Handle handle, const std::atomic<uint64_t>& issued) noexcept {
  const std::lock_guard lock(mutex_);
  added_.push_back({issued.load(std::memory_order_acquire), handle});
  total_.store(total_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const bool became_long = size_.fetch_add(1, std::memory_order_relaxed) + 1 == kLong;
  const bool wake = wake_armed_ || became_long;
  wake_armed_ = false;
  return wake;
}

const FreeList::Freed* FreeList::front(uint64_t sequence) noexcept {
  if (taken_at_ == taken_.size()) {
    taken_.clear();
    taken_at_ = 0;
    if (size() == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    taken_.swap(added_);
  }
  if (taken_at_ == taken_.size() || taken_[taken_at_].sequence > sequence) return nullptr;
  return &taken_[taken_at_];
}

void FreeList::pop() noexcept {
  ++taken_at_;
  size_.fetch_sub(1, std::memory_order_relaxed);
}

bool FreeList::arm_wake() noexcept {
  const std::lock_guard lock(mutex_);
  if (size() != 0) return false;
  wake_armed_ = true;
  return true;
}

}  // namespace rgpu
