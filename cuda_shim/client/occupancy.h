// Occupancy: how many blocks of a kernel a multiprocessor holds, by NVIDIA's published rules.
//
// Threading: plain values and functions.
// Errors:    none: 0 blocks of what cannot be launched.
#pragma once

#include <cstdint>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/modules.h"

namespace rgpu::cuda {

struct OccupancyLimits {
  // `registers_each`: of a thread; 0: not known, and left out.
  OccupancyLimits(const Device& device, const Kernel& kernel, int64_t registers_each);

  int64_t threads = 0;  // Of a multiprocessor, as the next three.
  int64_t blocks = 0;
  int64_t registers = 0;
  int64_t shared_bytes = 0;
  int64_t shared_reserved_bytes = 0;  // Of a block, as what follows.
  int64_t shared_max_bytes = 0;
  int64_t shared_static_bytes = 0;
  int64_t threads_max = 0;
  int64_t registers_each = 0;
};

[[nodiscard]] int64_t active_blocks(const OccupancyLimits& limits, int64_t block_threads,
                                    int64_t dynamic_shared_bytes);
// How much dynamic shared memory each of so many blocks may have.
[[nodiscard]] int64_t dynamic_shared_bytes_of(const OccupancyLimits& limits, int64_t block_count);

}  // namespace rgpu::cuda
