// The runtime API: the driver's functions by name and version.

#include "cuda_shim/client/errors.h"
#include "cuda_shim/generated/cuda_api.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

static_assert(static_cast<int>(cudaEnableLegacyStream) == CU_GET_PROC_ADDRESS_LEGACY_STREAM);
static_assert(static_cast<int>(cudaEnablePerThreadDefaultStream) ==
              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
static_assert(static_cast<int>(cudaDriverEntryPointSymbolNotFound) ==
              CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
static_assert(static_cast<int>(cudaDriverEntryPointVersionNotSufficent) ==
              CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int version, unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) noexcept {
  if (version > INT32_MAX) return latch(cudaErrorInvalidValue);
  auto found = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult code =
      cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, &found);
  if (code == CUDA_SUCCESS && status != nullptr) {
    *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  }
  return latch(code);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) noexcept {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, status);
}

cudaError_t cudaGetExportTable(const void** table, const cudaUUID_t*) noexcept {
  if (table == nullptr) return latch(cudaErrorInvalidValue);
  *table = nullptr;
  return latch(cudaErrorNotSupported);
}
