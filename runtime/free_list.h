// FreeList: handles that nobody uses any more, each with its place in the session's order.
//
// Threading: any thread adds, under a lock of its own that nobody holds while waiting; only the
//            I/O thread takes. Bounded by the number of live handles, so add() never waits.
// Errors:    none.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "wire/batch.h"

namespace rgpu {

class FreeList {
 public:
  struct Freed {
    uint64_t sequence = 0;  // The last record that may use the handle.
    wire::Handle handle = 0;
  };

  // `issued`: the session's sequence so far; it is read under the list's lock, so entries are in
  // order. True: the I/O thread sleeps and should look at the list (it asked for that in
  // arm_wake(), or the list has become long); the caller wakes it.
  [[nodiscard]] bool add(wire::Handle handle, const std::atomic<uint64_t>& issued) noexcept;

  // I/O thread. The oldest entry whose sequence is at most `sequence`, or nullptr.
  [[nodiscard]] const Freed* front(uint64_t sequence) noexcept;
  void pop() noexcept;  // Only after front() found one.
  // The next add() returns true. False: the list is not empty, look at it first.
  [[nodiscard]] bool arm_wake() noexcept;

  // Any thread.
  [[nodiscard]] uint64_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t total() const noexcept { return total_.load(std::memory_order_relaxed); }

  static constexpr uint64_t kLong = 4096;  // So many are worth a batch of their own.

 private:
  std::mutex mutex_;
  std::vector<Freed> added_;  // Guarded by mutex_.
  bool wake_armed_ = false;   // Guarded by mutex_.

  std::vector<Freed> taken_;  // The I/O thread's: swapped with added_ when used up, so that both
  size_t taken_at_ = 0;       // keep their memory.
  std::atomic<uint64_t> size_{0};
  std::atomic<uint64_t> total_{0};
};

}  // namespace rgpu
