// ProcAddresses: what cuGetProcAddress and cudaGetDriverEntryPoint answer.
//
// Threading: any thread; constant tables.
// Lifetime:  static. The addresses are counting trampolines, as libcuda.so.1's exports are.
// Errors:    in `Found`; every function that the model has gets an address, implemented or not,
//            as it does from dlsym().
#pragma once

#include <string_view>

namespace rgpu::cuda {

enum class ProcFound { kFound, kUnknownName, kVersionTooOld };

struct ProcAddress {
  ProcFound found = ProcFound::kUnknownName;
  void* address = nullptr;
};

// `version` as CUDA_VERSION is written: 12040. The newest form that is not newer than it; with
// `per_thread`, the _ptsz or _ptds form where there is one. A name may also be an export's own
// ("cuMemAlloc_v2"), whatever the version.
[[nodiscard]] ProcAddress proc_address(std::string_view name, int version,
                                       bool per_thread) noexcept;

}  // namespace rgpu::cuda
