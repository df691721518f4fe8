// The driver API: modules and functions.

#include <cstdio>
#include <string>
#include <vector>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/image_file.h"
#include "cuda_shim/client/jit_options.h"
#include "cuda_shim/client/modules.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUmodule handle_of(Module* module) { return reinterpret_cast<CUmodule>(module); }
CUfunction handle_of(Kernel* kernel) { return reinterpret_cast<CUfunction>(kernel); }

CUresult enter(CUmodule handle, Calling& calling, Module*& module) {
  RGPU_TRY(rgpu::cuda::enter(calling));
  module = modules().find(handle);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult enter(CUfunction handle, Calling& calling, Kernel*& kernel) {
  RGPU_TRY(rgpu::cuda::enter(calling));
  kernel = kernels().find(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* handle, const void* image) noexcept {
  Calling calling;
  RGPU_TRY(rgpu::cuda::enter(calling));
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = nullptr;
  RGPU_TRY(load_module(image, calling.device, module));
  *handle = handle_of(module);
  return CUDA_SUCCESS;
}

// Whoever wants to read what is wrong with an image waits for the server to look at it; others hear
// of it at the next synchronization.
CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned int option_count,
                            CUjit_option* options, void** values) noexcept {
  JitOptions read;
  RGPU_TRY(read.read(option_count, options, values));
  CUresult code = cuModuleLoadData(handle, image);
  if (!read.wants_errors()) return code;
  if (code == CUDA_SUCCESS) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    code = cuMemGetInfo_v2(&free_bytes, &total_bytes);  // Any answer brings the failure along.
    if (code == CUDA_SUCCESS) return code;
    unload_module(*modules().find(*handle));
  }
  read.write_errors(last_message());
  return code;
}

CUresult cuModuleLoadFatBinary(CUmodule* handle, const void* image) noexcept {
  return cuModuleLoadData(handle, image);
}

CUresult cuModuleLoad(CUmodule* handle, const char* path) noexcept {
  Calling calling;
  RGPU_TRY(rgpu::cuda::enter(calling));
  if (handle == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> image;
  RGPU_TRY(read_image_file(path, image));
  Module* module = nullptr;
  RGPU_TRY(load_module(image, calling.device, module));
  *handle = handle_of(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle) noexcept {
  Calling calling;
  Module* module = nullptr;
  RGPU_TRY(enter(handle, calling, module));
  if (module->is_library) return CUDA_ERROR_NOT_PERMITTED;
  unload_module(*module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) noexcept {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) noexcept {
  Calling calling;
  Module* module = nullptr;
  RGPU_TRY(enter(handle, calling, module));
  if (function == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  RGPU_TRY(find_kernel(*module, name, kernel));
  *function = handle_of(kernel);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) noexcept {
  Calling calling;
  Module* module = nullptr;
  RGPU_TRY(enter(handle, calling, module));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* none = nullptr;
  if (const CUresult code = find_kernel(*module, "", none); code != CUDA_ERROR_NOT_FOUND) {
    return code;
  }
  *count = static_cast<unsigned>(module->kernels_in_order.size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count,
                                    CUmodule handle) noexcept {
  unsigned there = 0;
  RGPU_TRY(cuModuleGetFunctionCount(&there, handle));
  if (functions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const Module* const module = modules().find(handle);
  for (unsigned i = 0; i < count && i < there; ++i) {
    functions[i] = handle_of(module->kernels_in_order[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size_bytes, CUmodule handle,
                              const char* name) noexcept {
  Calling calling;
  Module* module = nullptr;
  RGPU_TRY(enter(handle, calling, module));
  if (name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  GlobalVariable* variable = nullptr;
  RGPU_TRY(find_variable(*module, name, variable));
  if (address != nullptr) {
    uint64_t at = 0;
    RGPU_TRY(address_of(*module, *variable, *calling.device, at));
    *address = at;
  }
  if (size_bytes != nullptr) *size_bytes = variable->size_bytes;
  return CUDA_SUCCESS;
}

// ---- Functions ----------------------------------------------------------------------------------

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                            CUfunction handle) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return attribute_of(*kernel, *calling.device, attribute, *value);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  return set_attribute(*kernel, *calling.device, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  return config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  return config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = handle_of(kernel->module);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset_bytes,
                            size_t* size_bytes) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  if (offset_bytes == nullptr || index >= kernel->parameters.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *offset_bytes = kernel->parameters[index].offset_bytes;
  if (size_bytes != nullptr) *size_bytes = kernel->parameters[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = kernel->numbers[calling.device->number] != 0 ? CU_FUNCTION_LOADING_STATE_LOADED
                                                        : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) noexcept {
  Calling calling;
  Kernel* kernel = nullptr;
  RGPU_TRY(enter(handle, calling, kernel));
  uint32_t number = 0;
  return number_on(*kernel, *calling.device, number);
}
