#include "runtime/wait.h"

namespace rgpu {

CountedWait::CountedWait(Counters& counters, WaitObserver& observer)
    : counters_(counters), observer_(observer), since_(std::chrono::steady_clock::now()) {
  counters_.waits.fetch_add(1, std::memory_order_relaxed);
  observer_.before_wait();
}

CountedWait::~CountedWait() {
  const auto waited = std::chrono::steady_clock::now() - since_;
  counters_.wait_ns.fetch_add(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count()),
      std::memory_order_relaxed);
  observer_.after_wait();
  observer_.counted(waited);
}

}  // namespace rgpu
