// The driver API: what a device has to give. Nothing is divided into green contexts.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUresult describe(const Device& device, CUdevResource* resource, CUdevResourceType type) {
  constexpr unsigned kPartitionMin = 2;  // Multiprocessors, since 8.0; of no use without splitting.
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = {};
  resource->type = type;
  resource->sm.smCount =
      static_cast<unsigned>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  resource->sm.minSmPartitionSize = resource->sm.smCoscheduledAlignment = kPartitionMin;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource* resource,
                                CUdevResourceType type) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  return describe(*device, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource,
                             CUdevResourceType type) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const Context* const context = contexts().find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return describe(*context->device, resource, type);
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(handle, stream));
  if (green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* parameter, CUexecAffinityType type) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (parameter == nullptr || type >= CU_EXEC_AFFINITY_TYPE_MAX) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

// Of host memory: no device reaches it across a network.
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (capabilities == nullptr || operations == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    capabilities[i] = 0;
  }
  return CUDA_SUCCESS;
}

// ---- Memory of graphs: none of theirs allocate (yet), so none is used
// ------------------------------

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) noexcept {
  Device* device = nullptr;
  return find_device(ordinal, device);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (value == nullptr || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<cuuint64_t*>(value) = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  const bool is_high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                       attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  const bool is_reset = value != nullptr && *static_cast<const cuuint64_t*>(value) == 0;
  return is_high && is_reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
