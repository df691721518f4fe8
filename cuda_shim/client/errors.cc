#include "cuda_shim/client/errors.h"

#include "cuda_shim/client/client.h"

namespace rgpu::cuda {
namespace {

thread_local cudaError_t the_last_error = cudaSuccess;

constexpr ErrorText kDriverErrors[] = {
#define RGPU_CUDA_ERROR(code, name, text) {code, name, text},
#include "cuda_shim/generated/driver_errors.inc"
#undef RGPU_CUDA_ERROR
};
constexpr ErrorText kRuntimeErrors[] = {
#define RGPU_CUDA_ERROR(code, name, text) {code, name, text},
#include "cuda_shim/generated/runtime_errors.inc"
#undef RGPU_CUDA_ERROR
};

template <size_t N>
const ErrorText* find(const ErrorText (&errors)[N], int code) noexcept {
  for (const ErrorText& error : errors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace

// The numbers are the same, but that the runtime has some more.
cudaError_t to_runtime(CUresult code) noexcept { return static_cast<cudaError_t>(code); }

CUresult to_driver(cudaError_t code) noexcept {
  if (code == cudaErrorInvalidConfiguration) return CUDA_ERROR_INVALID_VALUE;
  return driver_error(static_cast<int>(code)) != nullptr ? static_cast<CUresult>(code)
                                                         : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t latch(cudaError_t code) noexcept {
  // "Not ready" is no failure.
  if (code != cudaSuccess && code != cudaErrorNotReady) the_last_error = code;
  return code;
}

cudaError_t last_error(bool clear) noexcept {
  Client* const client = connected_client();
  if (client != nullptr && client->sticky() != CUDA_SUCCESS) return to_runtime(client->sticky());
  const cudaError_t error = the_last_error;
  if (clear) the_last_error = cudaSuccess;
  return error;
}

const ErrorText* driver_error(int code) noexcept { return find(kDriverErrors, code); }
const ErrorText* runtime_error(int code) noexcept { return find(kRuntimeErrors, code); }

}  // namespace rgpu::cuda
