#include "cuda_shim/client/registry.h"

#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/cuda/fatbin.h"

namespace rgpu::cuda {
namespace {

struct Entry {
  Module* module = nullptr;
  std::string name;
  size_t size_bytes = 0;
  Kernel* kernel = nullptr;  // Once it was looked up.
};

struct Registry {
  std::shared_mutex mutex;  // Guards what follows.
  std::unordered_map<const void*, Entry> kernels;
  std::unordered_map<const void*, Entry> variables;
};

// Leaked: images are unregistered by destructors that run after ours.
Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

Module* module_of(void** handle) { return modules().find(handle); }

cudaError_t of_lookup(CUresult code, cudaError_t not_found) {
  return code == CUDA_ERROR_NOT_FOUND ? not_found : static_cast<cudaError_t>(code);
}

}  // namespace

void** register_image(const void* wrapper) {
  Module* const module = modules().create();
  if (module == nullptr) {
    static void* none = nullptr;
    return &none;
  }
  if (const auto pieces = images_at(wrapper); !pieces) {
    say("a registered image cannot be read: " + pieces.error().message());
  } else if (pieces->size() == 1) {
    module->image = pieces->front();
  } else {
    for (const std::span<const std::byte> piece : *pieces) {
      module->copy.insert(module->copy.end(), piece.begin(), piece.end());
    }
    module->image = module->copy;
  }
  return reinterpret_cast<void**>(module);
}

void unregister_image(void** handle) {
  Module* const module = module_of(handle);
  if (module == nullptr) return;
  {
    const std::unique_lock lock(registry().mutex);
    const auto is_its = [&](const auto& entry) { return entry.second.module == module; };
    std::erase_if(registry().kernels, is_its);
    std::erase_if(registry().variables, is_its);
  }
  unload_module(*module);
}

void register_kernel(void** handle, const void* host_function, const char* name) {
  if (module_of(handle) == nullptr || name == nullptr) return;
  const std::unique_lock lock(registry().mutex);
  registry().kernels[host_function] = {module_of(handle), name, 0, nullptr};
}

void register_variable(void** handle, const void* host_variable, const char* name,
                       size_t size_bytes) {
  if (module_of(handle) == nullptr || name == nullptr) return;
  const std::unique_lock lock(registry().mutex);
  registry().variables[host_variable] = {module_of(handle), name, size_bytes, nullptr};
}

cudaError_t kernel_of(const void* host_function, Kernel*& kernel) {
  Entry entry;
  {
    const std::shared_lock lock(registry().mutex);
    const auto found = registry().kernels.find(host_function);
    if (found == registry().kernels.end()) {
      // A cudaKernel_t or cudaFunction_t will do as well.
      kernel = kernels().find(host_function);
      return kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
    }
    kernel = found->second.kernel;
    if (kernel != nullptr) return cudaSuccess;
    entry = found->second;
  }
  const CUresult code = find_kernel(*entry.module, entry.name, kernel);
  if (code != CUDA_SUCCESS) return of_lookup(code, cudaErrorInvalidDeviceFunction);
  const std::unique_lock lock(registry().mutex);
  const auto found = registry().kernels.find(host_function);
  if (found != registry().kernels.end()) found->second.kernel = kernel;
  return cudaSuccess;
}

cudaError_t symbol_of(const void* host_variable, Symbol& symbol) {
  Entry entry;
  {
    const std::shared_lock lock(registry().mutex);
    const auto found = registry().variables.find(host_variable);
    if (found == registry().variables.end()) return cudaErrorInvalidSymbol;
    entry = found->second;
  }
  symbol.module = entry.module;
  return of_lookup(find_variable(*entry.module, entry.name, symbol.variable),
                   cudaErrorInvalidSymbol);
}

}  // namespace rgpu::cuda
