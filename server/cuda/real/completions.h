// Marks: recorded events of CUDA's. Completions: what is to be called when marks are reached.
//
// Threading: as each class says.
// Lifetime:  an EventPool outlives its marks, and they the completions that wait for them.
// Errors:    CUresult codes, handed to the callbacks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/cuda/real/driver_symbols.h"

namespace rgpu::server::cuda {

struct CuEventHolder {
  CuEvent event = nullptr;
};
// One recording of an event; the event is used again when nobody holds the mark.
using Mark = std::shared_ptr<const CuEventHolder>;

// Events of one context. Threading: record() with that context current; marks are let go anywhere.
class EventPool {
 public:
  EventPool(const DriverSymbols& driver, unsigned flags) : driver_(driver), flags_(flags) {}
  ~EventPool();  // With the context current.
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // A CUresult; `mark` is set when it is 0.
  [[nodiscard]] int record(CuStream stream, Mark& mark);

 private:
  const DriverSymbols& driver_;
  const unsigned flags_;
  std::mutex mutex_;
  std::vector<CuEvent> idle_;  // Guarded by mutex_.
};

// A thread that waits for the marks of one stream, in order, and calls back.
// Threading: push() from one thread. Lifetime: the destructor drops what is behind the callback
// that runs or is waited for, and joins.
class Completions {
 public:
  static constexpr size_t kQueuedMax = 1u << 16;
  // With the CUresult that the waiting gave, or `code` when there is no mark.
  using Callback = std::function<void(int code)>;

  Completions(const DriverSymbols& driver, CuContext context);
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // Waits while kQueuedMax are queued, if it may.
  void push(Mark mark, int code, Callback callback, bool may_wait);
  [[nodiscard]] bool is_idle();

 private:
  struct Entry {
    Mark mark;
    int code = 0;
    Callback callback;
  };
  void run(CuContext context);

  const DriverSymbols& driver_;
  std::mutex mutex_;         // Guards what follows.
  std::deque<Entry> queue_;  // The front one is being waited for.
  bool closing_ = false;
  std::condition_variable changed_;
  std::condition_variable room_;
  std::thread thread_;
};

}  // namespace rgpu::server::cuda
