// The driver API: libraries, which are modules without a context, and their kernels.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/image_file.h"
#include "cuda_shim/client/jit_options.h"
#include "cuda_shim/client/modules.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUresult find_library(CUlibrary handle, Module*& library) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  library = modules().find(handle);
  return library == nullptr || !library->is_library ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_kernel_handle(CUkernel handle, Kernel*& kernel) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  kernel = kernels().find(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// What is wrong with the image is said when it is loaded, not when something of it is used.
CUresult finish(Module& library, CUlibrary* handle) {
  library.is_library = true;
  Kernel* none = nullptr;
  const CUresult code = find_kernel(library, "", none);
  if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_FOUND) {
    unload_module(library);
    return code;
  }
  *handle = reinterpret_cast<CUlibrary>(&library);
  return CUDA_SUCCESS;
}

CUresult variable_of(Module& library, const char* name, CUdeviceptr* address, size_t* size_bytes,
                     bool is_managed) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Calling calling;
  RGPU_TRY(enter(calling));
  GlobalVariable* variable = nullptr;
  RGPU_TRY(find_variable(library, name, variable));
  if (is_managed) return CUDA_ERROR_NOT_FOUND;  // None is, as yet.
  uint64_t found = 0;
  if (address != nullptr) RGPU_TRY(address_of(library, *variable, *calling.device, found));
  if (address != nullptr) *address = found;
  if (size_bytes != nullptr) *size_bytes = variable->size_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option* jit_options,
                           void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                           void** values, unsigned int count) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  JitOptions read;
  RGPU_TRY(read.read(jit_count, jit_options, jit_values));
  Module* library = nullptr;
  RGPU_TRY(load_module(code, nullptr, library));
  return finish(*library, handle);
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                               void** values, unsigned int count) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  JitOptions read;
  RGPU_TRY(read.read(jit_count, jit_options, jit_values));
  std::vector<std::byte> bytes;
  RGPU_TRY(read_image_file(path, bytes));
  Module* library = nullptr;
  RGPU_TRY(load_module(bytes, nullptr, library));
  return finish(*library, handle);
}

CUresult cuLibraryUnload(CUlibrary handle) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  unload_module(*library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* found = nullptr;
  RGPU_TRY(find_kernel(*library, name, found));
  *kernel = reinterpret_cast<CUkernel>(found);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(library->mutex);
  *count = static_cast<unsigned>(library->kernels_in_order.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* found, unsigned int count, CUlibrary handle) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  if (found == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(library->mutex);
  for (size_t i = 0; i < count && i < library->kernels_in_order.size(); ++i) {
    found[i] = reinterpret_cast<CUkernel>(library->kernels_in_order[i]);
  }
  return CUDA_SUCCESS;
}

// The module is the library itself, which knows where it is loaded.
CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Calling calling;
  RGPU_TRY(enter(calling));
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* size_bytes, CUlibrary handle,
                            const char* name) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  return variable_of(*library, name, address, size_bytes, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* size_bytes, CUlibrary handle,
                             const char* name) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  return variable_of(*library, name, address, size_bytes, true);
}

CUresult cuLibraryGetUnifiedFunction(void** function, CUlibrary handle, const char* name) noexcept {
  Module* library = nullptr;
  RGPU_TRY(find_library(handle, library));
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_FOUND;  // No image holds functions for both sides.
}

// ---- Kernels ------------------------------------------------------------------------------------

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Calling calling;
  RGPU_TRY(enter(calling));
  uint32_t number = 0;
  RGPU_TRY(number_on(*kernel, *calling.device, number));
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!kernel->module->is_library) return CUDA_ERROR_INVALID_HANDLE;
  *library = reinterpret_cast<CUlibrary>(kernel->module);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset,
                              size_t* size_bytes) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  if (offset == nullptr || index >= kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->parameters[index].offset_bytes;
  if (size_bytes != nullptr) *size_bytes = kernel->parameters[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*kernel, *device, attribute, *value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  return set_attribute(*kernel, *device, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal) noexcept {
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel_handle(handle, kernel));
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  // A hint, which no device of today takes.
  return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
