// stand_still: how a calling thread waits, for a reply, for room or for the handshake.
//
// Threading: called by issuing threads. The observer is called without the lock, since it may take
//            the GIL, which another thread may hold while it wants that lock.
// Errors:    false when the observer gave up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime/counters.h"
#include "runtime/session.h"

namespace rgpu {

inline constexpr std::chrono::milliseconds kWaitSlice{50};

// Counts one wait and its time, and tells the observer of its beginning and end.
class CountedWait {
 public:
  CountedWait(Counters& counters, WaitObserver& observer);
  ~CountedWait();
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;

 private:
  Counters& counters_;
  WaitObserver& observer_;
  const std::chrono::steady_clock::time_point since_;
};

// Waits until `done()` holds, which is called under `lock`; returns with `lock` held. Callers make
// a CountedWait first, before they take the lock.
template <typename Done>
[[nodiscard]] bool stand_still(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                               WaitObserver& observer, Done done) {
  while (!changed.wait_for(lock, kWaitSlice, done)) {
    lock.unlock();
    const bool keep_waiting = observer.keep_waiting();
    lock.lock();
    if (!keep_waiting) return done();
  }
  return true;
}

}  // namespace rgpu
