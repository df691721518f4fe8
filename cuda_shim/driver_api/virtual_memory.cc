// The driver API: addresses and memory apart.
//
// A device's memory lies in its own part of the address range, so a reservation belongs to a device
// too: to the one whose addresses were wished for, else to the current one. What the server knows
// is the mapping: an allocation at that address. So a handle can be mapped whole, at one place,
// once.

#include <map>
#include <mutex>
#include <utility>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr size_t kGranularityBytes = size_t{2} << 20;
constexpr size_t kPhysicalMax = 1u << 20;

struct Physical {
  CUmemAllocationProp properties{};
  Device* device = nullptr;
  size_t size_bytes = 0;
  size_t references = 1;
  bool was_mapped = false;
  uint64_t address = 0;  // 0: not mapped now.
  CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
};

using PhysicalMap = std::map<CUmemGenericAllocationHandle, Physical>;

std::mutex mutex;                                         // Guards what follows.
PhysicalMap physical;                                     // By handle.
std::map<uint64_t, CUmemGenericAllocationHandle> mapped;  // By address.
CUmemGenericAllocationHandle next_handle = 1;

bool is_whole(size_t size_bytes) { return size_bytes != 0 && size_bytes % kGranularityBytes == 0; }

CUresult check_properties(const CUmemAllocationProp* properties, Device*& device) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      properties->allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return find_device(properties->location.id, device);
}

// The mutex is held. Gives the memory back once nobody has it.
void drop_unused(PhysicalMap::iterator at) {
  if (at->second.references != 0 || at->second.address != 0) return;
  at->second.device->addresses.give_back(at->second.size_bytes);
  physical.erase(at);
}

// The mutex is held. Calls `visit(physical)` for the mappings that make up the range exactly;
// CUDA_ERROR_INVALID_VALUE when there are none such.
template <typename Visit>
CUresult for_each_mapping(uint64_t address, size_t size_bytes, Visit visit) {
  const uint64_t end = address + size_bytes;
  if (size_bytes == 0 || end < address) return CUDA_ERROR_INVALID_VALUE;
  for (const bool check : {true, false}) {
    for (uint64_t at = address; at != end;) {
      const auto found = mapped.find(at);
      if (found == mapped.end()) return CUDA_ERROR_INVALID_VALUE;
      const auto of = physical.find(found->second);
      const size_t step = of->second.size_bytes;
      if (step > end - at) return CUDA_ERROR_INVALID_VALUE;
      if (!check) visit(of);
      at += step;
    }
  }
  return CUDA_SUCCESS;
}

// The mutex is held. The mapping that holds the address.
PhysicalMap::iterator mapping_at(uint64_t address) {
  auto at = mapped.upper_bound(address);
  if (at == mapped.begin()) return physical.end();
  --at;
  const auto found = physical.find(at->second);
  return address - at->first < found->second.size_bytes ? found : physical.end();
}

}  // namespace

// ---- Addresses ----------------------------------------------------------------------------------

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size_bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (address == nullptr || flags != 0 || !is_whole(size_bytes) ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = calling.client->device_of(wanted);
  if (device == nullptr) device = calling.device;
  *address = device->addresses.reserve(size_bytes, alignment, wanted);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size_bytes) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  Device* const device = calling.client->device_of(address);
  const bool released = device != nullptr && device->addresses.release(address, size_bytes);
  return released ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ---- Memory -------------------------------------------------------------------------------------

CUresult cuMemGetAllocationGranularity(size_t* size_bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) noexcept {
  Device* device = nullptr;
  if (size_bytes == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  RGPU_TRY(check_properties(properties, device));
  *size_bytes = kGranularityBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (handle == nullptr || flags != 0 || !is_whole(size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  RGPU_TRY(check_properties(properties, device));
  const std::lock_guard lock(mutex);
  if (physical.size() >= kPhysicalMax || !device->addresses.take(size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = next_handle++;
  physical[*handle] = {.properties = *properties, .device = device, .size_bytes = size_bytes};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  const std::lock_guard lock(mutex);
  const auto found = physical.find(handle);
  if (found == physical.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.references;
  drop_unused(found);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) noexcept {
  const std::lock_guard lock(mutex);
  const auto found = mapping_at(reinterpret_cast<uint64_t>(address));
  if (handle == nullptr || found == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.references;
  *handle = found->first;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) noexcept {
  const std::lock_guard lock(mutex);
  const auto found = physical.find(handle);
  if (properties == nullptr || found == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

// ---- Both ---------------------------------------------------------------------------------------

CUresult cuMemMap(CUdeviceptr address, size_t size_bytes, size_t offset_bytes,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  const std::lock_guard lock(mutex);
  const auto found = physical.find(handle);
  if (found == physical.end() || found->second.references == 0 || flags != 0 || offset_bytes != 0 ||
      address % kGranularityBytes != 0 || size_bytes > found->second.size_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Physical& memory = found->second;
  if (memory.was_mapped || size_bytes != memory.size_bytes ||
      calling.client->device_of(address) != memory.device) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!memory.device->addresses.map(address, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  memory.was_mapped = true;
  memory.address = address;
  mapped[address] = handle;
  const uint32_t stream = primary_context(memory.properties.location.id).legacy.number;
  return calling.client->append_allocate(stream, address, size_bytes);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size_bytes) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  const std::lock_guard lock(mutex);
  return for_each_mapping(address, size_bytes, [&](PhysicalMap::iterator of) {
    const uint64_t at = std::exchange(of->second.address, 0);
    mapped.erase(at);
    // As free_device() has it: first on its way to the server.
    calling.client->session().free(at);
    (void)of->second.device->addresses.unmap(at);
    drop_unused(of);
  });
}

// Rights that are not given are not enforced, other than that cuMemGetAccess tells of them.
CUresult cuMemSetAccess(CUdeviceptr address, size_t size_bytes, const CUmemAccessDesc* descriptions,
                        size_t count) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (descriptions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < count; ++i) {
    const CUmemAccessDesc& description = descriptions[i];
    if (description.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    Device* device = nullptr;
    RGPU_TRY(find_device(description.location.id, device));
    RGPU_TRY(for_each_mapping(address, size_bytes, [&](PhysicalMap::iterator of) {
      if (of->second.device == device) of->second.access = description.flags;
    }));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) noexcept {
  if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device* device = nullptr;
  RGPU_TRY(find_device(location->id, device));
  const std::lock_guard lock(mutex);
  const auto found = mapping_at(address);
  if (found == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *flags = found->second.device == device ? found->second.access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}
