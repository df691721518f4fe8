// The driver API: device memory, host memory, pointers.

#include "cuda_shim/client/memory.h"

#include <cstring>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory_pool.h"
#include "wire/stream.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {
constexpr size_t kPitchBytes = 512;
constexpr unsigned kHostFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
}  // namespace

// ---- Device memory ------------------------------------------------------------------------------

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size_bytes) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t at = 0;
  RGPU_TRY(allocate(calling, size_bytes, at));
  *address = at;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch_bytes, size_t width_bytes,
                            size_t height, unsigned int element_size_bytes) noexcept {
  if (address == nullptr || pitch_bytes == nullptr || width_bytes == 0 || height == 0 ||
      (element_size_bytes != 4 && element_size_bytes != 8 && element_size_bytes != 16)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t pitch = (width_bytes + kPitchBytes - 1) / kPitchBytes * kPitchBytes;
  size_t size_bytes = 0;
  if (pitch < width_bytes || __builtin_mul_overflow(pitch, height, &size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  RGPU_TRY(cuMemAlloc_v2(address, size_bytes));
  *pitch_bytes = pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  return address == 0 ? CUDA_SUCCESS : free_device(*calling.client, address);
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (free_bytes == nullptr || total_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<int64_t> results;
  RGPU_TRY(calling.client->ask(calling.context->legacy.number, Call::kMemoryInfo,
                               rgpu::wire::cuda::MemoryInfo{0, calling.device->number, 0},
                               results));
  if (results.size() < 2) return CUDA_ERROR_UNKNOWN;
  *free_bytes = static_cast<size_t>(results[0]);
  *total_bytes = static_cast<size_t>(results[1]);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size_bytes,
                                 CUdeviceptr address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  const Device* const device = calling.client->device_of(address);
  if (device == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Allocation allocation = device->addresses.find(address);
  if (allocation.size_bytes == 0) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = allocation.address;
  if (size_bytes != nullptr) *size_bytes = allocation.size_bytes;
  return CUDA_SUCCESS;
}

// ---- Host memory --------------------------------------------------------------------------------

CUresult cuMemHostAlloc(void** address, size_t size_bytes, unsigned int flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (address == nullptr || (flags & ~kHostFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_host(calling, size_bytes, flags, *address);
}

CUresult cuMemAllocHost_v2(void** address, size_t size_bytes) noexcept {
  return cuMemHostAlloc(address, size_bytes, 0);
}

CUresult cuMemFreeHost(void* address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  return address == nullptr ? CUDA_SUCCESS : free_host(address);
}

CUresult cuMemHostRegister_v2(void* address, size_t size_bytes, unsigned int flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if ((flags & ~kRegisterFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return register_host(calling, address, size_bytes, flags);
}

CUresult cuMemHostUnregister(void* address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  return address == nullptr ? CUDA_ERROR_INVALID_VALUE : unregister_host(address);
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  const std::optional<HostBlock> block = find_host(address);
  if (flags == nullptr || !block) return CUDA_ERROR_INVALID_VALUE;
  *flags = block->flags;
  return CUDA_SUCCESS;
}

// Host memory is not mapped into devices (yet): attribute CAN_MAP_HOST_MEMORY is 0.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_address, void* address,
                                      unsigned int flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (device_address == nullptr || flags != 0 || !find_host(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- Pointers -----------------------------------------------------------------------------------

namespace {

struct Pointer {
  uint64_t address = 0;
  Device* device = nullptr;  // nullptr: host memory.
  Allocation allocation;
  std::optional<HostBlock> host;
  [[nodiscard]] bool known() const { return device != nullptr || host.has_value(); }
};

Pointer pointer_at(const Client& client, uint64_t address) {
  Pointer pointer;
  pointer.address = address;
  if (Device* const device = client.device_of(address)) {
    pointer.allocation = device->addresses.find(address);
    if (pointer.allocation.size_bytes != 0) pointer.device = device;
  } else {
    pointer.host = find_host(reinterpret_cast<const void*>(address));
  }
  return pointer;
}

template <typename Value>
CUresult put(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

Context* owner_of(const Client& client, const Pointer& pointer) {
  Context* owner = &primary_context(client.ordinal_of(pointer.device));
  if (pointer.allocation.owner == 0) return owner;
  contexts().for_each([&](Context& context) {
    if (context.id == pointer.allocation.owner) owner = &context;
  });
  return owner;
}

CUresult of_known(const Client& client, const Pointer& pointer, CUpointer_attribute attribute,
                  void* data) {
  const uint64_t begin =
      pointer.host ? reinterpret_cast<uint64_t>(pointer.host->address) : pointer.allocation.address;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put<CUcontext>(data,
                            reinterpret_cast<CUcontext>(pointer.host ? pointer.host->context
                                                                     : owner_of(client, pointer)));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put<unsigned>(data, pointer.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (pointer.host) return CUDA_ERROR_INVALID_VALUE;
      return put<CUdeviceptr>(data, pointer.address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!pointer.host) return CUDA_ERROR_INVALID_VALUE;
      return put(data, reinterpret_cast<void*>(pointer.address));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put<unsigned long long>(data, pointer.host ? begin : pointer.allocation.serial);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put<int>(
          data, pointer.host ? pointer.host->context->ordinal : client.ordinal_of(pointer.device));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put<CUdeviceptr>(data, begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put<size_t>(data,
                         pointer.host ? pointer.host->size_bytes : pointer.allocation.size_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put<bool>(data, pointer.device != nullptr);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return put<bool>(data, false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put<int>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put<unsigned long long>(data, 0);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put<CUmemoryPool>(data, reinterpret_cast<CUmemoryPool>(pool_of(pointer.address)));
    default:
      return attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ? CUDA_ERROR_INVALID_VALUE
                                                                       : CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Pointer pointer = pointer_at(*calling.client, address);
  if (!pointer.known()) return CUDA_ERROR_INVALID_VALUE;
  return of_known(*calling.client, pointer, attribute, data);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Pointer pointer = pointer_at(*calling.client, address);
  for (unsigned i = 0; i < count; ++i) {
    // Of memory that CUDA does not know everything is 0, and that is no error here.
    if (pointer.known()) {
      RGPU_TRY(of_known(*calling.client, pointer, attributes[i], data[i]));
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
      RGPU_TRY(put<int>(data[i], CU_DEVICE_INVALID));
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
               attributes[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) {
      RGPU_TRY(put<int>(data[i], 0));
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
               attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
               attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      RGPU_TRY(put<bool>(data[i], false));
    } else {
      RGPU_TRY(put<uint64_t>(data[i], 0));
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
      pointer_at(*calling.client, address).device == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;  // Copies that block do so in any case.
}
