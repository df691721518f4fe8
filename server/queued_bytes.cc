#include "server/queued_bytes.h"

namespace rgpu::server {

void QueuedBytes::add(size_t size_bytes) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return size_bytes_ == 0 || size_bytes_ + size_bytes <= size_bytes_max_; });
  size_bytes_ += size_bytes;
}

void QueuedBytes::remove(size_t size_bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    size_bytes_ -= size_bytes;
  }
  room_.notify_one();
}

}  // namespace rgpu::server
