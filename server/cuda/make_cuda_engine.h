// make_cuda_engine: the engine of a CUDA session, over the driver that the server was started with.
//
// Threading: as server/engine.h says of an Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/worker_context.h"

namespace rgpu::server {

struct CudaEngineOptions {
  std::string driver = "auto";       // "auto", "driver", "emulated", "null"
  uint32_t devices = 1;              // Emulated ones.
  uint32_t compute_capability = 89;  // Of those; 89 is 8.9.
  uint64_t memory_size_bytes = 0;    // Of each; 0: half of the machine's over all of them.
  uint32_t threads = 0;              // That run their blocks; 0: one per core.
  uint32_t launch_delay_us = 0;      // Before each kernel.
};
[[nodiscard]] std::unique_ptr<Engine> make_cuda_engine(const CudaEngineOptions& options,
                                                       const EngineContext& context);

}  // namespace rgpu::server
