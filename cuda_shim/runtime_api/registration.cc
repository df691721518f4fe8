// The runtime API: what nvcc's generated code calls: registration, and launches by <<<…>>>.

#include <vector>

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/launch.h"
#include "cuda_shim/client/registry.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_size_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t launch_kernel(Kernel* kernel, const LaunchShape& shape, void** arguments,
                          cudaStream_t stream_handle) {
  Calling calling;
  RGPU_TRY(enter_runtime(calling));
  Stream* stream = nullptr;
  RGPU_TRY(to_runtime(find_stream(stream_handle, stream)));
  return to_runtime(launch(calling, *kernel, shape, arguments, *stream));
}

LaunchShape shape_of(const dim3& grid, const dim3& block, size_t shared_size_bytes,
                     bool cooperative) {
  return {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_size_bytes, cooperative};
}

cudaError_t launch_function(const void* function, const LaunchShape& shape, void** arguments,
                            cudaStream_t stream) {
  RGPU_TRY(ensure_context());
  Kernel* kernel = nullptr;
  RGPU_TRY(kernel_of(function, kernel));
  return launch_kernel(kernel, shape, arguments, stream);
}

}  // namespace

// ---- Registration -------------------------------------------------------------------------------

void** __cudaRegisterFatBinary(void* wrapper) noexcept { return register_image(wrapper); }
void __cudaRegisterFatBinaryEnd(void**) noexcept {}
void __cudaUnregisterFatBinary(void** handle) noexcept { unregister_image(handle); }

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) noexcept {
  register_kernel(handle, host_function, name);
}

void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int,
                       size_t size_bytes, int, int) noexcept {
  register_variable(handle, host_variable, name, size_bytes);
}

void __cudaRegisterHostVar(void** handle, const char* name, char* host_variable,
                           size_t size_bytes) noexcept {
  register_variable(handle, host_variable, name, size_bytes);
}

void __cudaRegisterManagedVar(void** handle, void** host_variable, char*, const char* name, int,
                              size_t size_bytes, int, int) noexcept {
  register_variable(handle, host_variable, name, size_bytes);
  say("the program has a __managed__ variable (" + std::string(name) +
      "): managed memory is not supported yet");
}

char __cudaInitModule(void**) noexcept { return 1; }

// ---- <<<…>>> ------------------------------------------------------------------------------------

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_size_bytes,
                                         CUstream_st* stream) noexcept {
  configurations.push_back({grid, block, shared_size_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_size_bytes,
                                       void* stream) noexcept {
  if (configurations.empty()) return latch(cudaErrorMissingConfiguration);
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_size_bytes = last.shared_size_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* function) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) {
    *handle = nullptr;
    return latch(code);
  }
  Kernel* kernel = nullptr;
  const cudaError_t code = kernel_of(function, kernel);
  // A launch of nothing has the failure to tell.
  *handle = reinterpret_cast<cudaKernel_t>(kernel);
  return latch(code);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void** arguments,
                               size_t shared_size_bytes, cudaStream_t stream) noexcept {
  Kernel* const kernel = kernels().find(handle);
  if (kernel == nullptr) {
    // __cudaGetKernel() gave none, and has said why.
    const cudaError_t context = ensure_context();
    if (context != cudaSuccess) return latch(context);
    const cudaError_t why = handle == nullptr ? last_error(false) : cudaSuccess;
    return why != cudaSuccess ? why : latch(cudaErrorInvalidDeviceFunction);
  }
  return latch(
      launch_kernel(kernel, shape_of(grid, block, shared_size_bytes, false), arguments, stream));
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_size_bytes, cudaStream_t stream) noexcept {
  return latch(launch_function(function, shape_of(grid, block, shared_size_bytes, false), arguments,
                               stream));
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, size_t shared_size_bytes,
                                        cudaStream_t stream) noexcept {
  return latch(
      launch_function(function, shape_of(grid, block, shared_size_bytes, true), arguments, stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) noexcept {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return latch(cudaErrorInvalidValue);
  }
  LaunchShape shape = shape_of(config->gridDim, config->blockDim, config->dynamicSmemBytes, false);
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  const std::span attributes(reinterpret_cast<const CUlaunchAttribute*>(config->attrs),
                             config->numAttrs);
  if (const CUresult code = read_launch_attributes(attributes, shape); code != CUDA_SUCCESS) {
    return latch(code);
  }
  return latch(launch_function(function, shape, arguments, config->stream));
}
