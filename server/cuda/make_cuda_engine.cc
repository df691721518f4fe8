#include "server/cuda/make_cuda_engine.h"

#include "server/cuda/cuda_engine.h"
#include "server/cuda/null_driver.h"

namespace rgpu::server {
namespace {

Result<std::unique_ptr<cuda::Driver>> make_driver(const CudaEngineOptions& options) {
  if (options.driver == "null") return cuda::make_null_driver(options.devices);
  return Status(Code::kUnimplemented, "--cuda " + options.driver + " is not built yet");
}

}  // namespace

std::unique_ptr<Engine> make_cuda_engine(const CudaEngineOptions& options,
                                         const EngineContext& context) {
  return std::make_unique<cuda::CudaEngine>(context, [options] { return make_driver(options); });
}

}  // namespace rgpu::server
