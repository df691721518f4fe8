// The driver API: the vendor's private tables, of which there are none.

#include "cuda_shim/client/errors.h"
#include "cuda_shim/loader/unredirected_runtime.h"

// nvJitLink asks for one and goes on without it; a statically linked CUDA Runtime cannot.
CUresult cuGetExportTable(const void** table, const CUuuid* id) noexcept {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  rgpu::loader::report_unredirected_runtime(__builtin_return_address(0));
  *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
