// The runtime API: allocating, and what pointers are.

#include "cuda_shim/client/memory.h"

#include <algorithm>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr unsigned kHostFlags =
    cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

cudaError_t cudaMalloc(void** pointer, size_t size_bytes) noexcept {
  if (pointer == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (size_bytes == 0) {
    *pointer = nullptr;
    return cudaSuccess;
  }
  return latch(cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(pointer), size_bytes));
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch_bytes, size_t width_bytes,
                            size_t height) noexcept {
  if (pointer == nullptr || pitch_bytes == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (width_bytes == 0 || height == 0) {
    *pointer = nullptr;
    *pitch_bytes = 0;
    return cudaSuccess;
  }
  return latch(cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(pointer), pitch_bytes, width_bytes,
                                  height, 4));
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) noexcept {
  if (pointer == nullptr) return latch(cudaErrorInvalidValue);
  size_t rows = 0;
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows)) {
    return latch(cudaErrorMemoryAllocation);
  }
  *pointer = {nullptr, 0, extent.width, extent.height};
  return cudaMallocPitch(&pointer->ptr, &pointer->pitch, extent.width, rows);
}

cudaError_t cudaFree(void* pointer) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  return latch(cuMemFree_v2(address_of(pointer)));
}

cudaError_t cudaHostAlloc(void** pointer, size_t size_bytes, unsigned int flags) noexcept {
  if (pointer == nullptr || (flags & ~kHostFlags) != 0) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  return latch(cuMemHostAlloc(pointer, size_bytes, flags));
}

cudaError_t cudaMallocHost(void** pointer, size_t size_bytes) noexcept {
  return cudaHostAlloc(pointer, size_bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  return latch(cuMemFreeHost(pointer));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* pointer) noexcept {
  Calling calling;
  if (const cudaError_t code = enter_runtime(calling); code != cudaSuccess) return latch(code);
  if (attributes == nullptr) return latch(cudaErrorInvalidValue);
  *attributes = {};
  attributes->device = -2;  // cudaInvalidDeviceId
  const Client& client = *calling.client;
  const Device* const device = client.device_of(address_of(pointer));
  if (device != nullptr && device->addresses.find(address_of(pointer)).size_bytes != 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = client.ordinal_of(device);
    attributes->devicePointer = const_cast<void*>(pointer);
  } else if (const std::optional<HostBlock> block = find_host(pointer)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = block->context->ordinal;
    attributes->hostPointer = const_cast<void*>(pointer);
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->hostPointer = const_cast<void*>(pointer);
  }
  return cudaSuccess;
}
