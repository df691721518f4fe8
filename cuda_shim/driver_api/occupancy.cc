// The driver API: occupancy.

#include "cuda_shim/client/occupancy.h"

#include <algorithm>
#include <cstdint>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr int64_t kWarpSize = 32;
constexpr unsigned kFlagsMax = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;

// Calls `answer` with the function's limits on the current device.
template <typename Answer>
CUresult with_limits(CUfunction handle, Answer answer) {
  Calling calling;
  RGPU_TRY(enter(calling));
  Kernel* const kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  int registers_each = 0;
  RGPU_TRY(attribute_of(*kernel, *calling.device, CU_FUNC_ATTRIBUTE_NUM_REGS, registers_each));
  return answer(OccupancyLimits(*calling.device, *kernel, registers_each), *calling.device);
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
  return with_limits(function, [&](const OccupancyLimits& limits, const Device&) {
    *count = static_cast<int>(
        active_blocks(limits, block_threads, static_cast<int64_t>(dynamic_shared_bytes)));
    return CUDA_SUCCESS;
  });
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
  return with_limits(function, [&](const OccupancyLimits& limits, const Device& device) {
    const int64_t most =
        block_max > 0 ? std::min<int64_t>(limits.threads_max, block_max) : limits.threads_max;
    int64_t threads_best = 0;
    int64_t blocks_best = 0;
    for (int64_t at = (most + kWarpSize - 1) / kWarpSize * kWarpSize; at > 0; at -= kWarpSize) {
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
    *grid_min =
        static_cast<int>(blocks_best * device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    return CUDA_SUCCESS;
  });
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
  return with_limits(function, [&](const OccupancyLimits& limits, const Device&) {
    if (active_blocks(limits, block_threads, 0) < block_count) return CUDA_ERROR_INVALID_VALUE;
    *dynamic_shared_bytes = static_cast<size_t>(dynamic_shared_bytes_of(limits, block_count));
    return CUDA_SUCCESS;
  });
}
