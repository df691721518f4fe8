// EmulatedDriver's modules and functions.

#include <utility>

#include "server/cuda/emulated/device_attributes.h"
#include "server/cuda/emulated/emulated_driver.h"
#include "wire/cuda/fatbin.h"

namespace rgpu::server::cuda {
namespace {

constexpr size_t kModulesMax = 1u << 16;
constexpr size_t kFunctionsMax = 1u << 20;

// By CUfunction_attribute.
enum : size_t {
  kMaxThreadsPerBlock = 0,
  kSharedSize = 1,
  kConstSize = 2,
  kLocalSize = 3,
  kRegisters = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kCacheModeCa = 7,
  kMaxDynamicShared = 8,
  kPreferredCarveout = 9,
  kFunctionAttributesEnd = 16,
};

}  // namespace

Outcome EmulatedDriver::load_module(uint32_t module, uint32_t device, Bytes image) {
  if (modules_.size() >= kModulesMax) return {kOutOfMemory, "too many modules"};
  const auto images = ::rgpu::cuda::read_images(image.bytes);
  if (!images) return {kInvalidImage, images.error().message()};
  const auto choice = ::rgpu::cuda::choose_ptx(*images, options_.compute_capability);
  if (!choice) return {kNoBinaryForGpu, choice.error().message()};
  const auto text = ::rgpu::cuda::unpack((*images)[choice->index]);
  if (!text) return {kInvalidImage, text.error().message()};
  auto loaded =
      ptx::Module::load(std::string_view(reinterpret_cast<const char*>(text->data()), text->size()),
                        {options_.compute_capability, devices_[device]->memory.get()});
  if (!loaded) return {kInvalidPtx, loaded.error().message()};
  modules_[module] = {device, *std::move(loaded)};
  return {};
}

void EmulatedDriver::unload_module(uint32_t module) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return;
  std::erase_if(functions_, [&](const auto& function) {
    return function.second.module == found->second.module;
  });
  // Its variables go with it, once nothing runs that uses them.
  streams_->fence(found->second.device, [module = found->second.module] {});
  modules_.erase(found);
}

Outcome EmulatedDriver::get_function(uint32_t function, uint32_t module, std::string_view name) {
  if (functions_.size() >= kFunctionsMax) return {kOutOfMemory, "too many functions"};
  const auto found = modules_.find(module);
  if (found == modules_.end()) return {};  // Its loading failed, and that was said.
  const ptx::Kernel* const kernel = found->second.module->kernel(name);
  if (kernel == nullptr) return {kNotFound, "no kernel " + std::string(name)};
  if (!kernel->error.empty()) return {kInvalidPtx, kernel->error};
  functions_[function] = {found->second.device, found->second.module, kernel,
                          kSharedSizeBytes > kernel->static_shared_size_bytes
                              ? kSharedSizeBytes - kernel->static_shared_size_bytes
                              : 0};
  return {};
}

Outcome EmulatedDriver::get_global(uint32_t module, std::string_view name, Variable& variable) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) return {kInvalidHandle, "unknown module"};
  const ptx::Variable* const global = found->second.module->variable(name);
  if (global == nullptr) return {kNotFound, "no variable " + std::string(name)};
  variable = {global->address, global->size_bytes};
  return {};
}

Outcome EmulatedDriver::function_attributes(uint32_t function, std::vector<int32_t>& values) {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return {kInvalidHandle, "unknown function"};
  const ptx::Kernel& kernel = *found->second.kernel;
  values.assign(kFunctionAttributesEnd, 0);
  values[kMaxThreadsPerBlock] = static_cast<int32_t>(kernel.threads_max);
  values[kSharedSize] = static_cast<int32_t>(kernel.static_shared_size_bytes);
  values[kConstSize] = static_cast<int32_t>(kernel.const_size_bytes);
  values[kLocalSize] = static_cast<int32_t>(kernel.local_size_bytes);
  values[kRegisters] = static_cast<int32_t>(kernel.register_count);
  // As after a compilation for this device: what the PTX was for, and what it runs on.
  values[kPtxVersion] = static_cast<int32_t>(kernel.binary_version);
  values[kBinaryVersion] = static_cast<int32_t>(options_.compute_capability);
  values[kMaxDynamicShared] = static_cast<int32_t>(found->second.dynamic_shared_size_bytes_max);
  values[kPreferredCarveout] = -1;
  return {};
}

Outcome EmulatedDriver::set_function_attribute(uint32_t function, int32_t attribute,
                                               int32_t value) {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return {kInvalidHandle, "unknown function"};
  if (attribute != static_cast<int32_t>(kMaxDynamicShared)) return {};
  const uint32_t fixed = found->second.kernel->static_shared_size_bytes;
  if (value < 0 || static_cast<uint32_t>(value) > kSharedOptInSizeBytes - fixed) {
    return {kInvalidValue, "more dynamic shared memory than a block may have"};
  }
  found->second.dynamic_shared_size_bytes_max = static_cast<uint32_t>(value);
  return {};
}

}  // namespace rgpu::server::cuda
