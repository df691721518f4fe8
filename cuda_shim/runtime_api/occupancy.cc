// The runtime API: occupancy, by the host address that stands for a function.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/registry.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

// Calls `ask` with the driver's handle of the function.
template <typename Ask>
cudaError_t with_function(const void* function, Ask ask) {
  RGPU_TRY(ensure_context());
  Kernel* kernel = nullptr;
  RGPU_TRY(kernel_of(function, kernel));
  return to_runtime(ask(reinterpret_cast<CUfunction>(kernel)));
}

}  // namespace

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void* function,
                                                                   int block_size,
                                                                   size_t shared_size_bytes,
                                                                   unsigned int flags) noexcept {
  return latch(with_function(function, [&](CUfunction handle) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, handle, block_size,
                                                                shared_size_bytes, flags);
  }));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void* function,
                                                          int block_size,
                                                          size_t shared_size_bytes) noexcept {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, block_size,
                                                                shared_size_bytes, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* size_bytes, const void* function,
                                                      int block_count, int block_size) noexcept {
  return latch(with_function(function, [&](CUfunction handle) {
    return cuOccupancyAvailableDynamicSMemPerBlock(size_bytes, handle, block_count, block_size);
  }));
}
