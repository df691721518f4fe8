// The runtime API: what has rules of its own beside the driver's streams and peers.

#include <memory>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned int flags) noexcept {
  struct Call {
    cudaStreamCallback_t callback;
    void* data;
  };
  if (callback == nullptr || flags != 0) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  auto call = std::make_unique<Call>(Call{callback, data});
  const CUresult code = cuStreamAddCallback(
      stream,
      [](CUstream of, CUresult status, void* given) {
        const std::unique_ptr<Call> owned(static_cast<Call*>(given));
        owned->callback(of, to_runtime(status), owned->data);
      },
      call.get(), 0);
  if (code == CUDA_SUCCESS) (void)call.release();
  return latch(code);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (peer < 0 || peer >= device_count()) return latch(cudaErrorInvalidDevice);
  return latch(cuCtxEnablePeerAccess(reinterpret_cast<CUcontext>(&primary_context(peer)), flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (peer < 0 || peer >= device_count()) return latch(cudaErrorInvalidDevice);
  return latch(cuCtxDisablePeerAccess(reinterpret_cast<CUcontext>(&primary_context(peer))));
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) noexcept {
  return {x, y, z, w, kind};
}
