#include "server/cuda/real/completions.h"

#include <utility>

#include "server/cuda/driver.h"

namespace rgpu::server::cuda {

EventPool::~EventPool() {
  for (const CuEvent event : idle_) (void)driver_.destroy_event(event);
}

int EventPool::record(CuStream stream, Mark& mark) {
  CuEvent event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      event = idle_.back();
      idle_.pop_back();
    }
  }
  if (event == nullptr) {
    if (const int code = driver_.create_event(&event, flags_); code != kSuccess) return code;
  }
  Mark made(new CuEventHolder{event}, [this](const CuEventHolder* holder) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(holder->event);
    delete holder;
  });
  const int code = driver_.record_event(event, stream);
  if (code == kSuccess) mark = std::move(made);
  return code;
}

Completions::Completions(const DriverSymbols& driver, CuContext context)
    : driver_(driver), thread_([this, context] { run(context); }) {}

Completions::~Completions() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Completions::push(Mark mark, int code, Callback callback, bool may_wait) {
  {
    std::unique_lock lock(mutex_);
    if (may_wait) room_.wait(lock, [&] { return queue_.size() < kQueuedMax; });
    queue_.push_back({std::move(mark), code, std::move(callback)});
  }
  changed_.notify_one();
}

bool Completions::is_idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

void Completions::run(CuContext context) {
  (void)driver_.set_context(context);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    Entry& entry = queue_.front();  // Others are only added behind it.
    lock.unlock();
    int code = entry.code;
    if (entry.mark) code = driver_.synchronize_event(entry.mark->event);
    entry.callback(code);
    // What the callback holds is let go before the next is waited for.
    entry = {};
    lock.lock();
    queue_.pop_front();
    room_.notify_all();
  }
}

}  // namespace rgpu::server::cuda
