// PinnedPool: host memory that the device reads and writes by itself, kept for the next copy.
//
// Threading: take() is the caller's of the driver, with a context current; blocks are let go on any
//            thread.
// Lifetime:  a block belongs to whoever holds it, and goes back when the last one lets it go; a
//            reply that is being sent may hold one after the pool was closed.
// Errors:    take() gives nullptr when there is no more such memory.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "server/cuda/real/driver_symbols.h"

namespace rgpu::server::cuda {

struct PinnedBlock {
  std::byte* bytes = nullptr;
  uint64_t size_bytes = 0;
};

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // Over the first, take() waits for blocks to come back, if it may; nothing goes over the second.
  static constexpr uint64_t kSizeBytesMax = uint64_t{1} << 30;
  static constexpr uint64_t kSizeBytesLimit = uint64_t{8} << 30;

  explicit PinnedPool(const DriverSymbols& driver) : driver_(driver) {}

  [[nodiscard]] std::shared_ptr<PinnedBlock> take(uint64_t size_bytes, bool may_wait);
  // Frees what nobody holds. False: some blocks are still held.
  [[nodiscard]] bool close();

 private:
  void give_back(PinnedBlock* block);
  void free_idle();  // Under mutex_.
  [[nodiscard]] std::shared_ptr<PinnedBlock> lend(const PinnedBlock& block);

  const DriverSymbols driver_;
  std::mutex mutex_;                          // Guards what follows.
  std::multimap<uint64_t, std::byte*> idle_;  // By size.
  uint64_t idle_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  std::condition_variable returned_;
};

}  // namespace rgpu::server::cuda
