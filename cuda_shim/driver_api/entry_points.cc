// The driver API: functions by name and version.

#include "cuda_shim/client/proc_addresses.h"
#include "cuda_shim/generated/cuda_api.h"
#include "cuda_shim/loader/unredirected_runtime.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept {
  constexpr cuuint64_t kFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || function == nullptr || (flags & ~kFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (version > CUDA_VERSION) {  // Only then does it matter what the server's driver is.
    int newest = 0;
    if (cuDriverGetVersion(&newest) != CUDA_SUCCESS || version > newest) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const ProcAddress answer = proc_address(symbol, version, per_thread);
  *function = answer.address;
  if (status == nullptr) return CUDA_SUCCESS;
  switch (answer.found) {
    case ProcFound::kFound:
      *status = CU_GET_PROC_ADDRESS_SUCCESS;
      break;
    case ProcFound::kUnknownName:
      *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
      break;
    case ProcFound::kVersionTooOld:
      *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      break;
  }
  return CUDA_SUCCESS;
}

// Before there was a status, what is not found was an error.
CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          cuuint64_t flags) noexcept {
  const CUresult code = cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
  return code == CUDA_SUCCESS && *function == nullptr ? CUDA_ERROR_NOT_FOUND : code;
}

// Tables of functions that the vendor's libraries share among each other are not imitated.
CUresult cuGetExportTable(const void** table, const CUuuid*) noexcept {
  if (table == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  rgpu::loader::report_unredirected_runtime(__builtin_return_address(0));
  return CUDA_ERROR_NOT_FOUND;
}
