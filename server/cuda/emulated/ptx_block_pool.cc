#include "server/cuda/emulated/ptx_block_pool.h"

#include <algorithm>

namespace rgpu::server::ptx {

BlockPool::BlockPool(uint32_t thread_count) {
  if (thread_count == 0) thread_count = std::max(1U, std::thread::hardware_concurrency());
  threads_.reserve(thread_count);
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this, i] { loop(i); });
}

BlockPool::~BlockPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockPool::work(BlockJob& job) {
  Entry entry{.job = &job};
  std::unique_lock lock(mutex_);
  entries_.push_back(&entry);
  wanted_.notify_all();
  finished_.wait(lock, [&entry] { return entry.finished && entry.helpers == 0; });
  std::erase(entries_, &entry);
}

BlockPool::Entry* BlockPool::next() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry* entry = entries_.front();
    entries_.pop_front();
    entries_.push_back(entry);
    if (!entry->finished && !entry->exhausted) return entry;
  }
  return nullptr;
}

void BlockPool::loop(uint32_t worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Entry* entry = nullptr;
    wanted_.wait(lock, [&] { return stopping_ || (entry = next()) != nullptr; });
    if (entry == nullptr) return;
    ++entry->helpers;
    lock.unlock();
    const BlockJob::Step step = entry->job->step(worker);
    lock.lock();
    --entry->helpers;
    if (step == BlockJob::Step::kDone) entry->finished = true;
    // Without others inside, what was in their hands has come back meanwhile.
    if (step == BlockJob::Step::kBusy && entry->helpers > 0) entry->exhausted = true;
    if (step != BlockJob::Step::kBusy && entry->exhausted) {
      // A block was put back: others may help again.
      entry->exhausted = false;
      wanted_.notify_all();
    }
    if (entry->finished && entry->helpers == 0) finished_.notify_all();
  }
}

}  // namespace rgpu::server::ptx
