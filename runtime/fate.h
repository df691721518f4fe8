// Fate: whether a session lives, and if not, why.
//
// Threading: any thread. The first reason stays.
#pragma once

#include <atomic>
#include <mutex>

#include "wire/status.h"

namespace rgpu {

class Fate {
 public:
  [[nodiscard]] bool alive() const noexcept { return alive_.load(std::memory_order_relaxed); }
  [[nodiscard]] Status status() const;
  // Always kDisconnected, whatever `reason`'s code: for the caller they are all the same.
  // False: the session was lost before.
  bool end(const Status& reason);
  // In a forked child, where the mutex may be held by a thread that does not exist there.
  void end_in_forked_child() noexcept;

 private:
  std::atomic<bool> alive_{true};
  std::atomic<bool> forked_{false};
  mutable std::mutex mutex_;
  Status reason_;
};

}  // namespace rgpu
