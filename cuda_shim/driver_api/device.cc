// The driver API: initialisation, devices, primary contexts.

#include <cctype>
#include <cstdio>
#include <cstring>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/device_reset.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

CUresult cuInit(unsigned int flags) noexcept {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : initialise();
}

CUresult cuDriverGetVersion(int* version) noexcept {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Client* made = nullptr;
  *version = client(made) == CUDA_SUCCESS ? made->info().driver_version : CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) noexcept {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) noexcept {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* found = nullptr;
  RGPU_TRY(find_device(ordinal, found));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (name == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(size), "%s", device->info.name.c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(uuid, device->info.uuid.data(), sizeof *uuid);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) noexcept {
  return cuDeviceGetUuid_v2(uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(size_t* size_bytes, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (size_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size_bytes = device->info.memory_size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = device->attribute(attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) noexcept {
  RGPU_TRY(cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal));
  return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto of = [&](CUdevice_attribute attribute) { return device->attribute(attribute); };
  *properties = {};
  properties->maxThreadsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties->maxThreadsDim[0] = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties->maxThreadsDim[1] = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties->maxThreadsDim[2] = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties->maxGridSize[0] = of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties->maxGridSize[1] = of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties->maxGridSize[2] = of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties->sharedMemPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties->totalConstantMemory = of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  properties->SIMDWidth = of(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties->memPitch = of(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  properties->regsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties->clockRate = of(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  properties->textureAlign = of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (text == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(text, static_cast<size_t>(size), "%04X:%02X:%02X.0",
                device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* ordinal, const char* text) noexcept {
  if (ordinal == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned number = 0;
  unsigned function = 0;
  if (std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &number, &function) < 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x.%x", &bus, &number, &function) < 2) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (int i = 0; i < device_count(); ++i) {
    Device* device = nullptr;
    RGPU_TRY(find_device(i, device));
    if (device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) == static_cast<int>(domain) &&
        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) == static_cast<int>(bus) &&
        device->attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) == static_cast<int>(number)) {
      *ordinal = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type,
                                        CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (supported == nullptr || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

// ---- Primary contexts ---------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context& context = primary_context(ordinal);
  context.retained.fetch_add(1);
  context.active = true;
  *handle = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  Context& context = primary_context(ordinal);
  if (context.retained.load() <= 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context.retained.fetch_sub(1) == 1) context.active = false;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal) noexcept {
  return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  primary_context(ordinal).flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) noexcept {
  return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Context& context = primary_context(ordinal);
  *flags = context.flags;
  *active = context.active ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  Context& context = primary_context(ordinal);
  RGPU_TRY(reset_device(context));
  context.active = context.retained.load() > 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal) noexcept {
  return cuDevicePrimaryCtxReset_v2(ordinal);
}
