// Registry: what a program's own code registers before main: images, and the host addresses that
// stand for kernels and variables. All of it is local; nothing is connected or read until something
// is used.
//
// Threading: any thread.
// Lifetime:  what was registered stays until its image is unregistered (dlclose, exit).
#pragma once

#include <cstddef>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/modules.h"

namespace rgpu::cuda {

// A handle for what follows; never nullptr.
[[nodiscard]] void** register_image(const void* wrapper);
void unregister_image(void** handle);
void register_kernel(void** handle, const void* host_function, const char* name);
void register_variable(void** handle, const void* host_variable, const char* name,
                       size_t size_bytes);

// cudaErrorInvalidDeviceFunction, or why its image is of no use.
[[nodiscard]] cudaError_t kernel_of(const void* host_function, Kernel*& kernel);
struct Symbol {
  Module* module = nullptr;
  GlobalVariable* variable = nullptr;
};
// cudaErrorInvalidSymbol.
[[nodiscard]] cudaError_t symbol_of(const void* host_variable, Symbol& symbol);

}  // namespace rgpu::cuda
