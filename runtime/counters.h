// Counters: what SessionStats is made from.
//
// Threading: each counter has few writers and any readers; relaxed, so sums may be a moment apart.
#pragma once

#include <atomic>
#include <cstdint>

namespace rgpu {

struct Counters {
  // Written by the I/O thread alone, with bump().
  std::atomic<uint64_t> frames{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> payload_bytes_out{0};
  std::atomic<uint64_t> payload_bytes_in{0};
  std::atomic<uint64_t> server_busy_ns{0};
  std::atomic<uint64_t> server_idle_ns{0};
  // Written by any thread, with fetch_add.
  std::atomic<uint64_t> waits{0};
  std::atomic<uint64_t> stalls{0};
  std::atomic<uint64_t> wait_ns{0};
  std::atomic<uint64_t> wakeups{0};
  std::atomic<uint64_t> payload_bytes_requested{0};
};

// For a counter with one writer: no locked instruction.
inline void bump(std::atomic<uint64_t>& counter, uint64_t by) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace rgpu
