#include "runtime/fate.h"

namespace rgpu {

Status Fate::status() const {
  if (alive()) return {};
  if (forked_.load(std::memory_order_relaxed)) {
    return Status(Code::kDisconnected,
                  "this process was forked from one with an rgpu session, and sessions do not "
                  "survive fork(): use the \"spawn\" start method");
  }
  const std::lock_guard lock(mutex_);
  return reason_;
}

bool Fate::end(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (!alive()) return false;
  reason_ = Status(Code::kDisconnected, reason.message());
  alive_.store(false, std::memory_order_relaxed);
  return true;
}

void Fate::end_in_forked_child() noexcept {
  forked_.store(true, std::memory_order_relaxed);
  alive_.store(false, std::memory_order_relaxed);
}

}  // namespace rgpu
