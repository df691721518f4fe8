#include "cuda_shim/client/per_thread.h"

#include "cuda_shim/client/streams.h"

namespace rgpu::cuda {
namespace {

bool must_wait(Settle settle) noexcept {
  return settle == Settle::kAll || (settle == Settle::kHostRead && host_functions_pending());
}

}  // namespace

Settle settle_of(cudaMemcpyKind kind) noexcept {
  switch (kind) {
    case cudaMemcpyDeviceToDevice:
      return Settle::kNothing;
    case cudaMemcpyHostToDevice:
      return Settle::kHostRead;
    default:
      return Settle::kAll;
  }
}

CUresult finish(CUresult code, Settle settle) noexcept {
  if (code != CUDA_SUCCESS || !must_wait(settle)) return code;
  return cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

cudaError_t finish_runtime(cudaError_t code, Settle settle) noexcept {
  if (code != cudaSuccess || !must_wait(settle)) return code;
  return cudaStreamSynchronize(cudaStreamPerThread);
}

}  // namespace rgpu::cuda
