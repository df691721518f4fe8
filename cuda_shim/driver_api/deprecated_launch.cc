// The driver API: launches as CUDA 3 had them. A function keeps its block's shape and its
// parameters, which are set one by one.

#include <cstring>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/launch.h"
#include "cuda_shim/client/modules.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

// Calls `change` with what the function keeps.
template <typename Change>
CUresult with_kept(CUfunction handle, Change change) {
  Calling calling;
  RGPU_TRY(enter(calling));
  Kernel* const kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(kernel->mutex);
  if (kernel->kept == nullptr) kernel->kept = std::make_unique<KeptLaunch>();
  return change(*kernel->kept);
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t size_bytes) {
  return with_kept(handle, [&](KeptLaunch& kept) {
    if (offset < 0 || value == nullptr || size_bytes > kParameterBytesMax ||
        static_cast<size_t>(offset) + size_bytes > kParameterBytesMax) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const size_t end = static_cast<size_t>(offset) + size_bytes;
    if (kept.parameters.size() < end) kept.parameters.resize(end);
    std::memcpy(kept.parameters.data() + offset, value, size_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult launch_kept(CUfunction handle, int width, int height, CUstream stream_handle) {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(stream_handle, stream));
  LaunchShape shape;
  shape.grid = {static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1};
  std::vector<std::byte> parameters;
  RGPU_TRY(with_kept(handle, [&](const KeptLaunch& kept) {
    shape.block = kept.block;
    shape.dynamic_shared_size_bytes = kept.shared_size_bytes;
    parameters = kept.parameters;
    return CUDA_SUCCESS;
  }));
  const CUresult code = launch(calling, *kernels().find(handle), shape, parameters, *stream);
  return code == kInvalidConfiguration ? CUDA_ERROR_INVALID_VALUE : code;
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) noexcept {
  return with_kept(handle, [&](KeptLaunch& kept) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    kept.block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int size_bytes) noexcept {
  return with_kept(handle, [&](KeptLaunch& kept) {
    kept.shared_size_bytes = size_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction handle, unsigned int size_bytes) noexcept {
  return with_kept(handle, [&](KeptLaunch& kept) {
    if (size_bytes > kParameterBytesMax) return CUDA_ERROR_INVALID_VALUE;
    kept.parameters.resize(size_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction handle, int offset, unsigned int value) noexcept {
  return set_parameter(handle, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction handle, int offset, float value) noexcept {
  return set_parameter(handle, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction handle, int offset, void* value, unsigned int size_bytes) noexcept {
  return set_parameter(handle, offset, value, size_bytes);
}

CUresult cuLaunch(CUfunction handle) noexcept { return launch_kept(handle, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction handle, int width, int height) noexcept {
  return launch_kept(handle, width, height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction handle, int width, int height, CUstream stream) noexcept {
  return launch_kept(handle, width, height, stream);
}

// ---- Several devices at once --------------------------------------------------------------------

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned int count,
                                              unsigned int flags) noexcept {
  constexpr unsigned kFlags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (launches == nullptr || count == 0 || (flags & ~kFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Grids that meet across devices need what no device of today offers; one alone is a launch.
  if (count > 1) return CUDA_ERROR_NOT_SUPPORTED;
  return cuLaunchCooperativeKernel(launches->function, launches->gridDimX, launches->gridDimY,
                                   launches->gridDimZ, launches->blockDimX, launches->blockDimY,
                                   launches->blockDimZ, launches->sharedMemBytes, launches->hStream,
                                   launches->kernelParams);
}
