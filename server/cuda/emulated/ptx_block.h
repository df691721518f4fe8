// Block: one block of a launch, its warps, barriers and shared memory, as data: it can be put aside
// whenever it waits.
//
// Threading: one thread at a time.
// Lifetime:  of its launch; used again for other blocks of it.
// Errors:    fault().
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "server/cuda/emulated/ptx_run.h"
#include "server/cuda/emulated/ptx_warp.h"

namespace rgpu::server::ptx {

// What the threads of the pool keep between the blocks they run.
struct WorkerCache {
  std::array<Memory::Interval, kIntervalCount> intervals{};
  uint64_t epoch = 0;
};

class Block {
 public:
  static constexpr uint32_t kBarrierLast = 16;  // 16: the cluster's.
  enum class Outcome : uint8_t { kDone, kWaits, kFault };

  Block(const Launch& launch, const GridState& grid);
  // Begins block `index` of the grid.
  void reset(uint64_t index);
  // Runs until it is done, or waits for something outside, or has had its share.
  Outcome run(WorkerCache& cache, uint32_t worker, const std::atomic<bool>* cancelled,
              const std::atomic<bool>& stopping);

  [[nodiscard]] const Kernel& kernel() const { return *launch_.kernel; }
  [[nodiscard]] const Fault& fault() const { return fault_; }
  [[nodiscard]] uint64_t executed() const;

  // For warps.
  void arrive(uint32_t number, uint32_t expected, uint32_t rounded_threads, uint32_t threads,
              Combine combine, uint32_t truth, uint32_t mask);
  void threads_exited(uint32_t count);

 private:
  struct Barrier {
    uint32_t threads = 0;   // That have arrived.
    uint32_t rounded = 0;   // The same, whole warps counted as 32.
    uint32_t expected = 0;  // 0: all of the block.
    uint32_t population = 0;
    bool all = true;
    bool any = false;
    Combine combine = Combine::kNone;
  };
  void complete_if_due(uint32_t number);
  void set_fault(const Warp& warp);
  void number_threads(Warp& warp, uint32_t first) const;

  const Launch& launch_;
  const GridState& grid_;
  uint32_t thread_count_;
  uint32_t live_ = 0;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::unique_ptr<std::byte[]> memory_;  // Shared memory, parameters, then each warp's rows.
  std::byte* shared_ = nullptr;
  std::byte* parameters_ = nullptr;
  std::byte* rows_ = nullptr;
  std::array<Barrier, kBarrierLast + 1> barriers_{};
  Fault fault_;
};

// Of one block, without its local memory.
[[nodiscard]] uint64_t block_size_bytes(const Launch& launch, const GridState& grid);

}  // namespace rgpu::server::ptx
