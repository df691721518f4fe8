// run(): executes one launch of a kernel, all its blocks, on the threads of a BlockPool.
//
// Threading: run() blocks its caller (a stream's thread) and may be called from many at once; the
//            pool's threads share their time among all launches that are running.
// Lifetime:  the pool outlives every run() that uses it.
// Errors:    a Fault carries a CUresult number and one line. The first one ends the launch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/cuda/emulated/ptx_block_pool.h"
#include "server/cuda/emulated/ptx_module.h"

namespace rgpu::server::ptx {

struct Launch {
  const Kernel* kernel = nullptr;  // Of `module`.
  std::shared_ptr<const Module> module;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t dynamic_shared_size_bytes = 0;
  bool cooperative = false;           // All blocks make progress, however many there are.
  std::vector<std::byte> parameters;  // As Kernel::parameters lays them out.
};

// CUresult numbers.
struct FaultCode {
  static constexpr int kNone = 0;
  static constexpr int kInvalidValue = 1;
  static constexpr int kOutOfMemory = 2;
  static constexpr int kInvalidPtx = 218;
  static constexpr int kIllegalAddress = 700;
  static constexpr int kLaunchTimeout = 702;  // Cancelled, or every thread waits for another.
  static constexpr int kAssert = 710;
  static constexpr int kIllegalInstruction = 715;
  static constexpr int kMisalignedAddress = 716;
  static constexpr int kInvalidAddressSpace = 717;
  static constexpr int kInvalidPc = 718;
  static constexpr int kLaunchFailed = 719;
};

struct Fault {
  int code = FaultCode::kNone;
  std::string message;
};

struct RunEnvironment {
  BlockPool* pool = nullptr;
  // What printf wrote: whole lines a call, except at the kernel's end. Called by one thread at a
  // time, before run() returns. May be empty.
  std::function<void(std::string_view)> print;
  // The text of a failed assertion; `print` if empty.
  std::function<void(std::string_view)> print_error;
  uint64_t clock_khz = 1'000'000;  // The rate of %clock.
  uint32_t multiprocessor_count = 16;
  uint64_t grid_id = 0;
  std::atomic<bool>* cancelled = nullptr;  // Ends the launch soon after it is set. May be null.

  // Set by run().
  uint64_t executed_lane_instructions = 0;
};

[[nodiscard]] Fault run(const Launch& launch, RunEnvironment& environment);

}  // namespace rgpu::server::ptx
