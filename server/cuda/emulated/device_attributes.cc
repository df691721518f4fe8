#include "server/cuda/emulated/device_attributes.h"

#include <cstddef>
#include <limits>

namespace rgpu::server::cuda {

std::vector<int32_t> device_attributes(uint32_t device, uint32_t compute_capability) {
  struct Attribute {
    int32_t number;
    int64_t value;
  };
  const Attribute attributes[] = {
      {1, kThreadsPerBlockMax},  // MAX_THREADS_PER_BLOCK
      {2, 1024},                 // MAX_BLOCK_DIM_X, Y, Z
      {3, 1024},
      {4, 64},
      {5, std::numeric_limits<int32_t>::max()},  // MAX_GRID_DIM_X, Y, Z
      {6, 65535},
      {7, 65535},
      {8, kSharedSizeBytes},                      // MAX_SHARED_MEMORY_PER_BLOCK
      {9, 65536},                                 // TOTAL_CONSTANT_MEMORY
      {10, 32},                                   // WARP_SIZE
      {11, std::numeric_limits<int32_t>::max()},  // MAX_PITCH
      {12, 65536},                                // MAX_REGISTERS_PER_BLOCK
      {13, kClockKhz},                            // CLOCK_RATE
      {14, 512},                                  // TEXTURE_ALIGNMENT
      {15, 1},                                    // GPU_OVERLAP
      {16, kMultiprocessors},                     // MULTIPROCESSOR_COUNT
      {30, 512},                                  // SURFACE_ALIGNMENT
      {31, 1},                                    // CONCURRENT_KERNELS
      {33, device + 1},                           // PCI_BUS_ID
      {36, 7'000'000},                            // MEMORY_CLOCK_RATE
      {37, 256},                                  // GLOBAL_MEMORY_BUS_WIDTH
      {38, 4 << 20},                              // L2_CACHE_SIZE
      {39, kThreadsPerMultiprocessor},            // MAX_THREADS_PER_MULTIPROCESSOR
      {40, 2},                                    // ASYNC_ENGINE_COUNT
      {41, 1},                                    // UNIFIED_ADDRESSING
      {51, 32},                                   // TEXTURE_PITCH_ALIGNMENT
      {75, compute_capability / 10},              // COMPUTE_CAPABILITY_MAJOR, MINOR
      {76, compute_capability % 10},
      {78, 1},                                  // STREAM_PRIORITIES_SUPPORTED
      {79, 1},                                  // GLOBAL_L1_CACHE_SUPPORTED
      {80, 1},                                  // LOCAL_L1_CACHE_SUPPORTED
      {81, kSharedPerMultiprocessorSizeBytes},  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
      {82, 65536},                              // MAX_REGISTERS_PER_MULTIPROCESSOR
      {85, device},                             // MULTI_GPU_BOARD_GROUP_ID
      {87, 2},                                  // SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO
      {90, 1},                                  // COMPUTE_PREEMPTION_SUPPORTED
      {95, 1},                                  // COOPERATIVE_LAUNCH
      {97, kSharedOptInSizeBytes},              // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      {99, 1},                                  // HOST_REGISTER_SUPPORTED
      {102, 1},                                 // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
      {106, kBlocksPerMultiprocessorMax},       // MAX_BLOCKS_PER_MULTIPROCESSOR
      {111, 1024},                              // RESERVED_SHARED_MEMORY_PER_BLOCK
      {115, 1},                                 // MEMORY_POOLS_SUPPORTED
      {129, 1},                                 // UNIFIED_FUNCTION_POINTERS
      {131, -1},                                // NUMA_ID
      {134, -1},                                // HOST_NUMA_ID
  };
  std::vector<int32_t> values(148);
  for (const Attribute& attribute : attributes) {
    values[static_cast<size_t>(attribute.number)] = static_cast<int32_t>(attribute.value);
  }
  return values;
}

}  // namespace rgpu::server::cuda
