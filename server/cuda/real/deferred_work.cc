#include "server/cuda/real/deferred_work.h"

#include <utility>

namespace rgpu::server::cuda {

struct DeferredWork::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;  // Guarded by mutex.

  void let_go() {
    {
      const std::lock_guard lock(mutex);
      open = true;
    }
    changed.notify_all();
  }
  // On a thread of CUDA's.
  static void wait(void* data) {
    const std::unique_ptr<std::shared_ptr<Gate>> held(static_cast<std::shared_ptr<Gate>*>(data));
    std::unique_lock lock((*held)->mutex);
    (*held)->changed.wait(lock, [&] { return (*held)->open; });
  }
};

DeferredWork::~DeferredWork() { open_all(); }

bool DeferredWork::may_run(Need need) const {
  const std::lock_guard lock(mutex_);
  return closed_ == 0 || (need == Need::kNothing && passed_ < kPassedMax);
}

bool DeferredWork::pass(Need need) {
  if (!queue_.empty() || !may_run(need)) return false;
  ++passed_;
  return true;
}

Outcome DeferredWork::defer(Work work, Need need) {
  if (queue_.size() >= kQueuedMax) {
    return {kOutOfMemory, "over " + std::to_string(kQueuedMax) +
                              " calls wait for a host function that holds a stream"};
  }
  queue_.push_back({std::move(work), need});
  return {};
}

int DeferredWork::close(const DriverSymbols& driver, CuStream stream, uint64_t gate) {
  const auto made = std::make_shared<Gate>();
  {
    // Waits for an Exclusion to end: what it does could wait for this gate.
    const std::lock_guard lock(mutex_);
    if (closed_++ == 0) passed_ = 0;
  }
  auto held = std::make_unique<std::shared_ptr<Gate>>(made);
  const int code = driver.launch_host_function(stream, &Gate::wait, held.get());
  gates_[gate] = made;
  if (code == kSuccess) {
    (void)held.release();
  } else {
    open(gate);
  }
  return code;
}

void DeferredWork::open(uint64_t gate) {
  const auto found = gates_.find(gate);
  if (found == gates_.end()) return;  // No correct client sends it.
  found->second->let_go();
  gates_.erase(found);
  {
    const std::lock_guard lock(mutex_);
    --closed_;
  }
  changed_.notify_all();
  run_queue();
}

void DeferredWork::run_queue() {
  while (!queue_.empty() && may_run(queue_.front().need)) {
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    ++passed_;
    if (const Outcome outcome = entry.work(); !outcome.ok()) failed_(outcome);
  }
}

void DeferredWork::open_all() {
  queue_.clear();
  for (const auto& [number, gate] : gates_) gate->let_go();
  gates_.clear();
  {
    const std::lock_guard lock(mutex_);
    closed_ = 0;
    ended_ = true;
  }
  changed_.notify_all();
}

bool DeferredWork::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_ != 0;
}

bool DeferredWork::exclude(std::unique_lock<std::mutex>& exclusion) {
  exclusion = std::unique_lock(mutex_);
  changed_.wait(exclusion, [&] { return closed_ == 0 || ended_; });
  return !ended_;
}

}  // namespace rgpu::server::cuda
