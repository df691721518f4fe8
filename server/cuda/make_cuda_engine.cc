#include "server/cuda/make_cuda_engine.h"

#include <spdlog/spdlog.h>

#include "server/cuda/cuda_engine.h"
#include "server/cuda/emulated/emulated_driver.h"
#include "server/cuda/null_driver.h"
#include "server/cuda/real_driver.h"

namespace rgpu::server {
namespace {

Result<std::unique_ptr<cuda::Driver>> make_driver(const CudaEngineOptions& options) {
  if (options.driver == "null") return cuda::make_null_driver(options.devices);
  if (options.driver != "emulated") {
    // In the session's own process: a driver that was initialised before a fork is of no use there.
    Result<std::unique_ptr<cuda::Driver>> real = cuda::make_real_driver();
    if (real || options.driver == "driver") return real;
    spdlog::info("GPUs are emulated: {}", real.error().message());
  }
  cuda::EmulatedOptions emulated;
  emulated.devices = options.devices;
  emulated.compute_capability = options.compute_capability;
  emulated.memory_size_bytes = options.memory_size_bytes;
  emulated.threads = options.threads;
  emulated.launch_delay = std::chrono::microseconds(options.launch_delay_us);
  return std::unique_ptr<cuda::Driver>(std::make_unique<cuda::EmulatedDriver>(emulated));
}

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(const CudaEngineOptions& options,
                                         const EngineContext& context) {
  return std::make_unique<cuda::CudaEngine>(context, [options] { return make_driver(options); });
}

}  // namespace rgpu::server
