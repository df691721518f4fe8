#include "cuda_shim/client/occupancy.h"

#include <algorithm>

namespace rgpu::cuda {
namespace {

constexpr int64_t kWarpSize = 32;
constexpr int64_t kRegistersUnit = 256;  // Registers are given to a warp in such pieces,
constexpr int64_t kSharedUnit = 128;     // shared memory to a block in these,
constexpr int64_t kPartitions = 4;       // and registers by the quarter of a multiprocessor.

constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

OccupancyLimits::OccupancyLimits(const Device& device, const Kernel& kernel, int64_t registers)
    : threads(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)),
      blocks(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)),
      registers(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)),
      shared_bytes(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)),
      shared_reserved_bytes(device.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)),
      shared_max_bytes(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
      shared_static_bytes(kernel.static_shared_size_bytes),
      threads_max(std::min<int64_t>(kernel.block_threads_max,
                                    device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))),
      registers_each(registers) {}

int64_t active_blocks(const OccupancyLimits& limits, int64_t block_threads,
                      int64_t dynamic_shared_bytes) {
  const int64_t shared = limits.shared_static_bytes + dynamic_shared_bytes;
  if (block_threads > limits.threads_max || shared > limits.shared_max_bytes) return 0;
  const int64_t warps = round_up(block_threads, kWarpSize) / kWarpSize;
  int64_t blocks = std::min(limits.blocks, limits.threads / kWarpSize / warps);
  if (limits.registers_each > 0) {
    const int64_t of_warp = round_up(limits.registers_each * kWarpSize, kRegistersUnit);
    const int64_t warps_max = limits.registers / kPartitions / of_warp * kPartitions;
    blocks = std::min(blocks, warps_max / warps);
  }
  const int64_t of_block = round_up(shared + limits.shared_reserved_bytes, kSharedUnit);
  if (of_block > 0) blocks = std::min(blocks, limits.shared_bytes / of_block);
  return blocks;
}

int64_t dynamic_shared_bytes_of(const OccupancyLimits& limits, int64_t block_count) {
  const int64_t share = limits.shared_bytes / block_count / kSharedUnit * kSharedUnit;
  return std::min(share - limits.shared_reserved_bytes, limits.shared_max_bytes) -
         limits.shared_static_bytes;
}

}  // namespace rgpu::cuda
