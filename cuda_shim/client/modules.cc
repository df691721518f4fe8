#include "cuda_shim/client/modules.h"

#include <cstring>

#include "wire/cuda/fatbin.h"
#include "wire/stream.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kModulesMax = 1u << 16;
constexpr size_t kKernelsMax = 1u << 20;

std::atomic<uint32_t> numbers{1};  // Of modules and functions on the server.

// The module's mutex is held.
void add_facts(Module& module, const ImageFacts& facts) {
  for (const KernelLayout& layout : facts.kernels) {
    Kernel* const kernel = cuda::kernels().create();
    if (kernel == nullptr) return;
    kernel->module = &module;
    kernel->name = layout.name;
    kernel->parameters = layout.parameters;
    kernel->parameters_size_bytes = layout.parameters_size_bytes;
    kernel->static_shared_size_bytes = layout.static_shared_size_bytes;
    kernel->dynamic_shared_size_bytes_max =
        (48u << 10) - std::min(48u << 10, layout.static_shared_size_bytes);
    const auto& block = layout.block_required[0] != 0 ? layout.block_required : layout.block_max;
    if (block[0] != 0) {
      kernel->block_threads_max = block[0] * std::max(1u, block[1]) * std::max(1u, block[2]);
    }
    module.kernels.emplace(layout.name, kernel);
    module.kernels_in_order.push_back(kernel);
  }
  for (const Variable& fact : facts.variables) {
    auto variable = std::make_unique<GlobalVariable>();
    variable->name = fact.name;
    variable->size_bytes = fact.size_bytes;
    variable->is_constant = fact.space == VariableSpace::kConstant;
    module.variables.emplace(fact.name, std::move(variable));
  }
}

// The module's mutex is held.
CUresult parse(Module& module) {
  if (module.parsed) return module.parse_code;
  module.parsed = true;
  Client* const client = connected_client();
  if (client == nullptr || client->devices().empty()) return CUDA_ERROR_NOT_INITIALIZED;
  const Device& device = module.device != nullptr ? *module.device : *client->devices().front();
  const auto fail = [&](CUresult code, const std::string& why) {
    say(why);
    return module.parse_code = code;
  };
  const auto images = read_images(module.image);
  if (!images) return fail(CUDA_ERROR_INVALID_IMAGE, images.error().message());
  // An emulated device runs PTX alone, so what it cannot run is known here.
  const uint32_t capability = capability_of(device);
  if (const auto choice = choose_ptx(*images, capability); !choice && client->info().emulated) {
    return fail(CUDA_ERROR_NO_BINARY_FOR_GPU, choice.error().message());
  }
  const auto facts = facts_for(*images, capability);
  if (!facts) return fail(CUDA_ERROR_INVALID_PTX, facts.error().message());
  add_facts(module, *facts);
  return CUDA_SUCCESS;
}

// The module's mutex is held. Sends the image when the device has not got it.
CUresult load_on(Module& module, Device& device, uint32_t& number) {
  if (device.number >= Kernel::kDevicesMax) return CUDA_ERROR_INVALID_DEVICE;
  number = module.numbers[device.number];
  if (number != 0) return CUDA_SUCCESS;
  Client* const client = connected_client();
  if (client == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (const CUresult code = parse(module); code != CUDA_SUCCESS) return code;
  const uint32_t stream = wire::stream_of(device.number, 0);
  wire::cuda::LoadModule load;
  load.module = numbers.fetch_add(1);
  load.device = device.number;
  if (const CUresult code = client->upload_buffer(stream, module.image, load.buffer);
      code != CUDA_SUCCESS) {
    return code;
  }
  if (const CUresult code = client->append(stream, Call::kLoadModule, load); code != CUDA_SUCCESS) {
    return code;
  }
  number = module.numbers[device.number] = load.module;
  return CUDA_SUCCESS;
}

CUresult finish_load(Module& module, Device* device) {
  const std::lock_guard lock(module.mutex);
  module.device = device;
  if (device == nullptr) return CUDA_SUCCESS;
  uint32_t number = 0;
  return load_on(module, *device, number);
}

}  // namespace

uint32_t capability_of(const Device& device) {
  return static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                               device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

HandleTable<Module>& modules() {
  static auto* const table = new HandleTable<Module>(kModulesMax);
  return *table;
}

HandleTable<Kernel>& kernels() {
  static auto* const table = new HandleTable<Kernel>(kKernelsMax);
  return *table;
}

// ---- Modules ------------------------------------------------------------------------------------

CUresult load_module(std::span<const std::byte> image, Device* device, Module*& module) {
  module = modules().create();
  if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  module->copy.assign(image.begin(), image.end());
  module->image = module->copy;
  const CUresult code = finish_load(*module, device);
  if (code != CUDA_SUCCESS) unload_module(*module);
  return code;
}

CUresult load_module(const void* image, Device* device, Module*& module) {
  const auto pieces = images_at(image);
  if (!pieces) {
    say(pieces.error().message());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  if (pieces->empty()) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  std::vector<std::byte> all;
  for (const std::span<const std::byte> piece : *pieces) {
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return load_module(all, device, module);
}

void unload_module(Module& module) {
  Client* const client = connected_client();
  {
    const std::lock_guard lock(module.mutex);
    for (Kernel* const kernel : module.kernels_in_order) kernels().destroy(kernel);
    for (uint32_t device = 0; device < module.numbers.size(); ++device) {
      if (client == nullptr || module.numbers[device] == 0) continue;
      (void)client->append(wire::stream_of(device, 0), Call::kUnloadModule,
                           wire::cuda::ModuleId{module.numbers[device]});
    }
  }
  modules().destroy(&module);
}

void unload_from(Device& device) {
  if (device.number >= Kernel::kDevicesMax) return;
  Client* const client = connected_client();
  modules().for_each([&](Module& module) {
    const std::lock_guard lock(module.mutex);
    uint32_t& number = module.numbers[device.number];
    if (number != 0 && client != nullptr) {
      (void)client->append(wire::stream_of(device.number, 0), Call::kUnloadModule,
                           wire::cuda::ModuleId{number});
    }
    number = 0;
    for (Kernel* const kernel : module.kernels_in_order) kernel->numbers[device.number] = 0;
    for (const auto& [name, variable] : module.variables) variable->addresses[device.number] = 0;
  });
}

CUresult find_kernel(Module& module, std::string_view name, Kernel*& kernel) {
  const std::lock_guard lock(module.mutex);
  if (const CUresult code = parse(module); code != CUDA_SUCCESS) return code;
  const auto found = module.kernels.find(std::string(name));
  if (found == module.kernels.end()) return CUDA_ERROR_NOT_FOUND;
  kernel = found->second;
  return CUDA_SUCCESS;
}

CUresult find_variable(Module& module, std::string_view name, GlobalVariable*& variable) {
  const std::lock_guard lock(module.mutex);
  if (const CUresult code = parse(module); code != CUDA_SUCCESS) return code;
  const auto found = module.variables.find(std::string(name));
  if (found == module.variables.end()) return CUDA_ERROR_NOT_FOUND;
  variable = found->second.get();
  return CUDA_SUCCESS;
}

CUresult address_of(Module& module, GlobalVariable& variable, Device& device, uint64_t& address) {
  const std::lock_guard lock(module.mutex);
  wire::cuda::GetGlobal get;
  if (const CUresult code = load_on(module, device, get.module); code != CUDA_SUCCESS) return code;
  address = variable.addresses[device.number];
  if (address != 0) return CUDA_SUCCESS;
  std::vector<int64_t> results;
  const auto name = std::as_bytes(std::span(variable.name));
  const CUresult code = connected_client()->ask(wire::stream_of(device.number, 0), Call::kGetGlobal,
                                                get, results, name);
  if (code != CUDA_SUCCESS) return code;
  if (results.size() < 2) return CUDA_ERROR_UNKNOWN;
  address = static_cast<uint64_t>(results[0]);
  if (!connected_client()->add_foreign(device, address, static_cast<uint64_t>(results[1]))) {
    say("the variable " + variable.name + " lies at an address that is in use in this process");
    return CUDA_ERROR_MAP_FAILED;
  }
  variable.addresses[device.number] = address;
  device.addresses.add_foreign(address, static_cast<uint64_t>(results[1]));
  return CUDA_SUCCESS;
}

// ---- Kernels ------------------------------------------------------------------------------------

CUresult number_on(Kernel& kernel, Device& device, uint32_t& number) {
  if (device.number >= Kernel::kDevicesMax) return CUDA_ERROR_INVALID_DEVICE;
  std::atomic<uint32_t>& known = kernel.numbers[device.number];
  number = known.load(std::memory_order_acquire);
  if (number != 0) [[likely]]
    return CUDA_SUCCESS;
  const std::lock_guard lock(kernel.module->mutex);
  number = known.load(std::memory_order_acquire);
  if (number != 0) return CUDA_SUCCESS;
  wire::cuda::GetFunction get;
  if (const CUresult code = load_on(*kernel.module, device, get.module); code != CUDA_SUCCESS) {
    return code;
  }
  get.function = numbers.fetch_add(1);
  const auto name = std::as_bytes(std::span(kernel.name));
  const CUresult code =
      connected_client()->append(wire::stream_of(device.number, 0), Call::kGetFunction, get, name);
  if (code != CUDA_SUCCESS) return code;
  number = get.function;
  known.store(number, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult attribute_of(Kernel& kernel, Device& device, int attribute, int& value) {
  if (attribute < 0 || attribute >= static_cast<int>(CU_FUNC_ATTRIBUTE_MAX))
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t number = 0;
  if (const CUresult code = number_on(kernel, device, number); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(kernel.mutex);
  for (const auto& [set, to] : kernel.attributes_set) {
    if (set == attribute) {
      value = to;
      return CUDA_SUCCESS;
    }
  }
  if (kernel.attributes.empty()) {
    std::vector<int64_t> results;
    const CUresult code =
        connected_client()->ask(wire::stream_of(device.number, 0), Call::kFunctionAttributes,
                                wire::cuda::FunctionAttributes{0, number, 0}, results);
    if (code != CUDA_SUCCESS) return code;
    kernel.attributes = std::move(results);
  }
  const auto at = static_cast<size_t>(attribute);
  value = at < kernel.attributes.size() ? static_cast<int>(kernel.attributes[at]) : 0;
  return CUDA_SUCCESS;
}

CUresult set_attribute(Kernel& kernel, Device& device, int attribute, int value) {
  const bool is_shared = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const bool may_be_set =
      is_shared || attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
      (attribute >= static_cast<int>(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) &&
       attribute < static_cast<int>(CU_FUNC_ATTRIBUTE_MAX));
  if (!may_be_set) return CUDA_ERROR_INVALID_VALUE;
  if (is_shared) {
    const int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                     static_cast<int>(kernel.static_shared_size_bytes);
    if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
    kernel.dynamic_shared_size_bytes_max = static_cast<uint32_t>(value);
  } else if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT &&
             (value < -1 || value > 100)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint32_t number = 0;
  if (const CUresult code = number_on(kernel, device, number); code != CUDA_SUCCESS) return code;
  {
    const std::lock_guard lock(kernel.mutex);
    std::erase_if(kernel.attributes_set, [&](const auto& set) { return set.first == attribute; });
    kernel.attributes_set.emplace_back(attribute, value);
  }
  return connected_client()->append(wire::stream_of(device.number, 0), Call::kSetFunctionAttribute,
                                    wire::cuda::SetFunctionAttribute{number, attribute, value});
}

}  // namespace rgpu::cuda
