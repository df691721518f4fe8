// The driver API: launches.

#include "cuda_shim/client/launch.h"

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUresult launch_function(CUfunction handle, LaunchShape shape, CUstream stream_handle,
                         void** parameters, void** extra) {
  Calling calling;
  RGPU_TRY(enter(calling));
  Kernel* const kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(stream_handle, stream));
  CUresult code = CUDA_SUCCESS;
  if (extra == nullptr) {
    code = launch(calling, *kernel, shape, parameters, *stream);
  } else {
    if (parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::byte* buffer = nullptr;
    size_t size_bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = static_cast<const std::byte*>(extra[1]);
      } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size_bytes = *static_cast<const size_t*>(extra[1]);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if (buffer == nullptr) size_bytes = 0;
    code = launch(calling, *kernel, shape, std::span(buffer, size_bytes), *stream);
  }
  return code == kInvalidConfiguration ? CUDA_ERROR_INVALID_VALUE : code;
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_size_bytes, CUstream stream,
                        void** parameters, void** extra) noexcept {
  return launch_function(
      function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_size_bytes, false},
      stream, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_size_bytes,
                                   CUstream stream, void** parameters) noexcept {
  return launch_function(
      function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_size_bytes, true},
      stream, parameters, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) noexcept {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes,
                    false};
  RGPU_TRY(read_launch_attributes({config->attrs, config->numAttrs}, shape));
  return launch_function(function, shape, config->hStream, parameters, extra);
}
