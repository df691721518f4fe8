// The driver API: how many blocks of a kernel a multiprocessor holds, by NVIDIA's published rules.

#include <algorithm>
#include <cstdint>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/modules.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr int64_t kWarpSize = 32;
constexpr int64_t kRegistersUnit = 256;  // Registers are given to a warp in such pieces,
constexpr int64_t kSharedUnit = 128;     // shared memory to a block in these,
constexpr int64_t kPartitions = 4;       // and registers by the quarter of a multiprocessor.
constexpr unsigned kFlagsMax = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;

constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr int64_t round_down(int64_t value, int64_t unit) { return value / unit * unit; }

struct Limits {
  Device* device = nullptr;
  Kernel* kernel = nullptr;
  int64_t threads = 0;  // What follows: of a multiprocessor.
  int64_t blocks = 0;
  int64_t registers = 0;
  int64_t shared_bytes = 0;
  int64_t shared_reserved_bytes = 0;  // What follows: of a block.
  int64_t shared_max_bytes = 0;
  int64_t registers_each = 0;  // A thread's.
};

CUresult read_limits(CUfunction handle, Limits& limits) {
  Calling calling;
  RGPU_TRY(enter(calling));
  limits.device = calling.device;
  limits.kernel = kernels().find(handle);
  if (limits.kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Device& device = *calling.device;
  limits.threads = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  limits.blocks = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  limits.registers = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  limits.shared_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  limits.shared_reserved_bytes =
      device.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  limits.shared_max_bytes = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  int registers_each = 0;
  RGPU_TRY(
      attribute_of(*limits.kernel, *limits.device, CU_FUNC_ATTRIBUTE_NUM_REGS, registers_each));
  limits.registers_each = registers_each;
  return CUDA_SUCCESS;
}

// 0: such blocks cannot be launched.
int64_t active_blocks(const Limits& limits, int64_t block_threads, int64_t dynamic_shared_bytes) {
  const int64_t static_bytes = limits.kernel->static_shared_size_bytes;
  if (block_threads > limits.kernel->block_threads_max ||
      static_bytes + dynamic_shared_bytes > limits.shared_max_bytes) {
    return 0;
  }
  const int64_t warps = round_up(block_threads, kWarpSize) / kWarpSize;
  int64_t blocks = std::min(limits.blocks, limits.threads / kWarpSize / warps);
  if (limits.registers_each > 0) {
    const int64_t of_warp = round_up(limits.registers_each * kWarpSize, kRegistersUnit);
    const int64_t warps_max = limits.registers / kPartitions / of_warp * kPartitions;
    blocks = std::min(blocks, warps_max / warps);
  }
  const int64_t shared_bytes =
      round_up(static_bytes + dynamic_shared_bytes + limits.shared_reserved_bytes, kSharedUnit);
  if (shared_bytes > 0) blocks = std::min(blocks, limits.shared_bytes / shared_bytes);
  return blocks;
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, CUfunction function,
                                                              int block_threads,
                                                              size_t dynamic_shared_bytes,
                                                              unsigned int flags) noexcept {
  if (count == nullptr || block_threads <= 0 || flags > kFlagsMax ||
      dynamic_shared_bytes > INT32_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Limits limits;
  RGPU_TRY(read_limits(function, limits));
  *count = static_cast<int>(
      active_blocks(limits, block_threads, static_cast<int64_t>(dynamic_shared_bytes)));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction function,
                                                     int block_threads,
                                                     size_t dynamic_shared_bytes) noexcept {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, block_threads,
                                                              dynamic_shared_bytes, 0);
}

// The largest of the best block sizes, which are multiples of a warp or the limit itself.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid_min, int* block_best,
                                                   CUfunction function, CUoccupancyB2DSize dynamic,
                                                   size_t dynamic_shared_bytes, int block_max,
                                                   unsigned int flags) noexcept {
  if (grid_min == nullptr || block_best == nullptr || flags > kFlagsMax || block_max < 0 ||
      dynamic_shared_bytes > INT32_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Limits limits;
  RGPU_TRY(read_limits(function, limits));
  int64_t most =
      std::min<int64_t>(limits.kernel->block_threads_max,
                        limits.device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  if (block_max > 0) most = std::min<int64_t>(most, block_max);
  int64_t threads_best = 0;
  int64_t blocks_best = 0;
  for (int64_t at = round_up(most, kWarpSize); at > 0; at -= kWarpSize) {
    const int64_t block = std::min(at, most);
    const size_t bytes =
        dynamic != nullptr ? dynamic(static_cast<int>(block)) : dynamic_shared_bytes;
    if (bytes > INT32_MAX) continue;
    const int64_t blocks = active_blocks(limits, block, static_cast<int64_t>(bytes));
    if (blocks * block <= threads_best) continue;
    threads_best = blocks * block;
    blocks_best = blocks;
    *block_best = static_cast<int>(block);
    if (threads_best == limits.threads) break;
  }
  if (threads_best == 0) return CUDA_ERROR_INVALID_VALUE;
  *grid_min = static_cast<int>(blocks_best *
                               limits.device->attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid_min, int* block_best, CUfunction function,
                                          CUoccupancyB2DSize dynamic, size_t dynamic_shared_bytes,
                                          int block_max) noexcept {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid_min, block_best, function, dynamic,
                                                   dynamic_shared_bytes, block_max, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamic_shared_bytes, CUfunction function,
                                                 int block_count, int block_threads) noexcept {
  if (dynamic_shared_bytes == nullptr || block_count <= 0 || block_threads <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Limits limits;
  RGPU_TRY(read_limits(function, limits));
  if (active_blocks(limits, block_threads, 0) < block_count) return CUDA_ERROR_INVALID_VALUE;
  const int64_t share =
      round_down(limits.shared_bytes / block_count, kSharedUnit) - limits.shared_reserved_bytes;
  *dynamic_shared_bytes = static_cast<size_t>(std::min(share, limits.shared_max_bytes) -
                                              limits.kernel->static_shared_size_bytes);
  return CUDA_SUCCESS;
}
