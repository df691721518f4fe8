#include "server/thread_executor.h"

#include <algorithm>
#include <utility>

namespace rgpu::server {

ThreadExecutor::~ThreadExecutor() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (Lane& lane : lanes_) {
    lane.changed.notify_all();
    if (lane.thread.joinable()) lane.thread.join();
  }
}

void ThreadExecutor::submit(std::unique_ptr<Run> run) {
  if (!threaded_) {
    if (!only_stream_) only_stream_ = run->stream;
    if (*only_stream_ == run->stream) {
      // Nothing is queued and no thread runs: whatever it may wait for is done.
      run->execute();
      last_completed_[run->stream] = run->id;
      return;
    }
    threaded_ = true;
  }
  const auto known = lane_of_stream_.try_emplace(run->stream, lane_of_stream_.size() % kThreadsMax);
  Lane& lane = lanes_[known.first->second];
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [&lane] { return lane.queue.size() < kRunsQueuedMax; });
  lane.queue.push_back(std::move(run));
  if (!lane.thread.joinable()) lane.thread = std::thread([this, &lane] { work(lane); });
  lane.changed.notify_one();
}

void ThreadExecutor::drain() {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [this] {
    return std::all_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return lane.queue.empty(); });
  });
}

bool ThreadExecutor::is_ready(const Run& run) const {
  return std::all_of(run.after.begin(), run.after.end(), [this](const Run::After& after) {
    const auto found = last_completed_.find(after.stream);
    return found != last_completed_.end() && found->second >= after.id;
  });
}

void ThreadExecutor::work(Lane& lane) {
  prepare_thread_();
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.changed.wait(lock, [this, &lane] { return closing_ || !lane.queue.empty(); });
    if (lane.queue.empty()) return;
    Run& run = *lane.queue.front();
    completed_.wait(lock, [this, &run] { return is_ready(run); });
    lock.unlock();
    clock_.begin();
    run.execute();
    clock_.end();
    const uint32_t stream = run.stream;
    const uint64_t id = run.id;
    lock.lock();
    std::unique_ptr<Run> done = std::move(lane.queue.front());
    lane.queue.pop_front();
    last_completed_[stream] = id;
    completed_.notify_all();
    lock.unlock();
    done.reset();  // Frees tensors: not under the lock.
    lock.lock();
  }
}

}  // namespace rgpu::server
