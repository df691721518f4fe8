// The runtime API: functions, by the host address that stands for them, or by a kernel's handle.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/registry.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

cudaError_t enter(const void* function, CUfunction& handle) {
  Calling calling;
  RGPU_TRY(enter_runtime(calling));
  Kernel* kernel = nullptr;
  RGPU_TRY(kernel_of(function, kernel));
  handle = reinterpret_cast<CUfunction>(kernel);
  return cudaSuccess;
}

cudaError_t attributes_of(CUfunction function, cudaFuncAttributes& attributes) {
  int values[CU_FUNC_ATTRIBUTE_MAX] = {};
  for (int i = 0; i < static_cast<int>(CU_FUNC_ATTRIBUTE_MAX); ++i) {
    RGPU_TRY(
        to_runtime(cuFuncGetAttribute(&values[i], static_cast<CUfunction_attribute>(i), function)));
  }
  const auto size = [&](int attribute) { return static_cast<size_t>(values[attribute]); };
  attributes = {};
  attributes.sharedSizeBytes = size(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  attributes.constSizeBytes = size(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  attributes.localSizeBytes = size(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  attributes.maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  attributes.numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS];
  attributes.ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION];
  attributes.binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
  attributes.cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA];
  attributes.maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  attributes.preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
  attributes.clusterDimMustBeSet = values[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET];
  attributes.requiredClusterWidth = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
  attributes.requiredClusterHeight = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT];
  attributes.requiredClusterDepth = values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH];
  attributes.clusterSchedulingPolicyPreference =
      values[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE];
  attributes.nonPortableClusterSizeAllowed =
      values[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) noexcept {
  CUfunction handle = nullptr;
  if (attributes == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(attributes_of(handle, *attributes));
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                 int value) noexcept {
  CUfunction handle = nullptr;
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(cuFuncSetAttribute(handle, static_cast<CUfunction_attribute>(attribute), value));
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache config) noexcept {
  CUfunction handle = nullptr;
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(cuFuncSetCacheConfig(handle, static_cast<CUfunc_cache>(config)));
}

cudaError_t cudaFuncSetSharedMemConfig(const void* function, cudaSharedMemConfig config) noexcept {
  CUfunction handle = nullptr;
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(cuFuncSetSharedMemConfig(handle, static_cast<CUsharedconfig>(config)));
}

cudaError_t cudaFuncGetName(const char** name, const void* function) noexcept {
  CUfunction handle = nullptr;
  if (name == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(cuFuncGetName(name, handle));
}

cudaError_t cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset_bytes,
                                 size_t* size_bytes) noexcept {
  CUfunction handle = nullptr;
  if (const cudaError_t code = enter(function, handle); code != cudaSuccess) return latch(code);
  return latch(cuFuncGetParamInfo(handle, index, offset_bytes, size_bytes));
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* handle, const void* function) noexcept {
  CUfunction found = nullptr;
  if (handle == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = enter(function, found); code != cudaSuccess) return latch(code);
  *handle = found;
  return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t* handle, const void* function) noexcept {
  CUfunction found = nullptr;
  if (handle == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = enter(function, found); code != cudaSuccess) return latch(code);
  *handle = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}
