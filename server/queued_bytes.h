// QueuedBytes: a bound on the bytes of batches that are decoded and not yet executed.
//
// Threading: one thread adds; any thread removes.
// Errors:    none. add() waits for room; what is larger than the bound is let through alone.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace rgpu::server {

class QueuedBytes {
 public:
  explicit QueuedBytes(size_t size_bytes_max) : size_bytes_max_(size_bytes_max) {}
  // What was added must be on its way to be removed by another thread, or be nothing.
  void add(size_t size_bytes);
  void remove(size_t size_bytes) noexcept;

 private:
  const size_t size_bytes_max_;
  std::mutex mutex_;
  std::condition_variable room_;
  size_t size_bytes_ = 0;
};

}  // namespace rgpu::server
