// The driver API: memory pools, and memory in the order of streams.

#include <algorithm>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory_pool.h"
#include "cuda_shim/client/streams.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUmemoryPool handle_of(MemoryPool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

CUresult find_pool(CUmemoryPool handle, MemoryPool*& pool) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  pool = memory_pools().find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Pools of device memory are all there are.
CUresult find_place(const CUmemLocation* location, CUmemAllocationType type, Device*& device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return find_device(location->id, device);
}

CUresult allocate_from(MemoryPool& pool, size_t size_bytes, CUstream stream_handle,
                       CUdeviceptr* address) {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(stream_handle, stream));
  uint64_t at = 0;
  RGPU_TRY(pool.memory->allocate(*calling.client, stream->number, size_bytes, at));
  *address = at;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size_bytes, CUstream handle) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(handle, stream));
  MemoryPool* pool = nullptr;
  RGPU_TRY(current_pool(*stream->device, pool));
  return allocate_from(*pool, size_bytes, handle, address);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t size_bytes, CUmemoryPool handle,
                                 CUstream stream) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  return allocate_from(*pool, size_bytes, stream, address);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(handle, stream));
  if (address == 0) return CUDA_SUCCESS;
  return give_back(*calling.client, stream->number, address);
}

// ---- Pools --------------------------------------------------------------------------------------

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  RGPU_TRY(find_place(&properties->location, properties->allocType, device));
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties->usage != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;  // Nothing is shared with other processes.
  }
  MemoryPool* pool = nullptr;
  RGPU_TRY(create_pool(*device, properties->maxSize, pool));
  *handle = handle_of(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  Client* const client = connected_client();
  return client == nullptr ? CUDA_ERROR_NOT_INITIALIZED : destroy_pool(*client, *pool);
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t kept_size_bytes) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  Client* const client = connected_client();
  if (client == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  pool->memory->trim(*client, kept_size_bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                               void* value) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->memory->attribute(attribute, value);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                               void* value) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : pool->memory->set_attribute(attribute, value);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  Device* device = nullptr;
  RGPU_TRY(find_place(location, CU_MEM_ALLOCATION_TYPE_PINNED, device));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = pool->memory->access(*device);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptions,
                            size_t count) noexcept {
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  if (descriptions == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  // All are looked at before one is taken.
  std::vector<std::pair<Device*, CUmemAccess_flags>> checked;
  for (size_t i = 0; i < count; ++i) {
    Device* device = nullptr;
    RGPU_TRY(find_place(&descriptions[i].location, CU_MEM_ALLOCATION_TYPE_PINNED, device));
    const CUmemAccess_flags flags = descriptions[i].flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool is_own = device == &pool->memory->device();
    if (is_own && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
    if (!is_own && !connected_client()->info().emulated) return CUDA_ERROR_INVALID_DEVICE;
    checked.emplace_back(device, flags);
  }
  for (const auto& [device, flags] : checked) pool->memory->set_access(*device, flags);
  return CUDA_SUCCESS;
}

// ---- Which pool a device takes from -------------------------------------------------------------

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* handle, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MemoryPool* pool = nullptr;
  RGPU_TRY(default_pool(*device, pool));
  *handle = handle_of(pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* handle, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MemoryPool* pool = nullptr;
  RGPU_TRY(current_pool(*device, pool));
  *handle = handle_of(pool);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  MemoryPool* pool = nullptr;
  RGPU_TRY(find_pool(handle, pool));
  if (&pool->memory->device() != device) return CUDA_ERROR_INVALID_VALUE;
  set_current_pool(*device, *pool);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* handle, CUmemLocation* location,
                                CUmemAllocationType type) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_place(location, type, device));
  return cuDeviceGetDefaultMemPool(handle, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool* handle, CUmemLocation* location,
                         CUmemAllocationType type) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_place(location, type, device));
  return cuDeviceGetMemPool(handle, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool handle) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_place(location, type, device));
  return cuDeviceSetMemPool(location->id, handle);
}
