#include "server/batch_queue.h"

#include <utility>

namespace rgpu::server {

void BatchQueue::push(std::unique_ptr<IncomingBatch> batch) {
  {
    const std::lock_guard lock(mutex_);
    size_bytes_ += batch->size_bytes;
    batches_.push_back(std::move(batch));
  }
  changed_.notify_one();
}

bool BatchQueue::full() const {
  const std::lock_guard lock(mutex_);
  return is_full();
}

std::unique_ptr<IncomingBatch> BatchQueue::pop() {
  std::unique_ptr<IncomingBatch> batch;
  bool room = false;
  std::unique_lock lock(mutex_);
  const bool was_full = is_full();
  size_bytes_ -= std::exchange(popped_size_bytes_, 0);
  if (was_full && !is_full()) {
    lock.unlock();
    on_room_();
    lock.lock();
  }
  changed_.wait(lock, [this] { return closed_ || !batches_.empty(); });
  if (closed_) return nullptr;
  const bool full_before = is_full();
  batch = std::move(batches_.front());
  batches_.pop_front();
  popped_size_bytes_ = batch->size_bytes;
  room = full_before && !is_full();
  lock.unlock();
  if (room) on_room_();
  return batch;
}

void BatchQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

}  // namespace rgpu::server
