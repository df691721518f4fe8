// The runtime API: errors and versions.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

cudaError_t cudaGetLastError() noexcept { return last_error(true); }
cudaError_t cudaPeekAtLastError() noexcept { return last_error(false); }

const char* cudaGetErrorName(cudaError_t error) noexcept {
  const ErrorText* const known = runtime_error(static_cast<int>(error));
  return known != nullptr ? known->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) noexcept {
  const ErrorText* const known = runtime_error(static_cast<int>(error));
  return known != nullptr ? known->text : "unrecognized error code";
}

CUresult cuGetErrorName(CUresult error, const char** name) noexcept {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const known = driver_error(static_cast<int>(error));
  *name = known != nullptr ? known->name : nullptr;
  return known != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) noexcept {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const known = driver_error(static_cast<int>(error));
  *text = known != nullptr ? known->text : nullptr;
  return known != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaDriverGetVersion(int* version) noexcept {
  return latch(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int* version) noexcept {
  if (version == nullptr) return latch(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
