// BatchQueue: the verified batches between the network thread and the decode thread.
//
// Threading: the network thread pushes and asks full(); one decode thread pops.
// Errors:    none. A full queue is the network thread's to respect: it stops reading, and TCP holds
//            the client back. `on_room` is called on the decode thread when a full queue has room.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "server/engine.h"

namespace rgpu::server {

class BatchQueue {
 public:
  struct Options {
    size_t size_bytes_max = size_t{64} << 20;
    size_t batches_max = 1024;
  };
  explicit BatchQueue(Options options) : options_(options) {}
  void on_room(std::function<void()> call) {
    on_room_ = std::move(call);
  }  // Before the first push.

  void push(std::unique_ptr<IncomingBatch> batch);
  [[nodiscard]] bool full() const;
  // Waits. The batch counts as queued until the next call, so that one under way is bounded too.
  // Null: closed.
  [[nodiscard]] std::unique_ptr<IncomingBatch> pop();
  void close();

 private:
  [[nodiscard]] bool is_full() const noexcept {
    return size_bytes_ >= options_.size_bytes_max || batches_.size() >= options_.batches_max;
  }

  const Options options_;
  std::function<void()> on_room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<IncomingBatch>> batches_;
  size_t size_bytes_ = 0;  // Of batches_ and the one popped last.
  size_t popped_size_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace rgpu::server
