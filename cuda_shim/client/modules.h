// Modules and kernels: what images hold, known here without asking; on which devices they are
// loaded.
//
// A module is loaded on a device when something of it is used there. Kernels are CUkernel,
// CUfunction, cudaKernel_t and cudaFunction_t alike.
//
// Threading: any thread.
// Lifetime:  handles as HandleTable says. Images that the program registers before main are the
//            program's own memory; others are copied.
// Errors:    CUresult; what says more goes to stderr.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/handle_table.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {

struct Module;

// What the oldest launch functions leave with a kernel (driver_api/deprecated_launch.cc).
struct KeptLaunch {
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_size_bytes = 0;
  std::vector<std::byte> parameters;
};

struct Kernel {
  static constexpr size_t kDevicesMax = 16;  // Numbers of devices from here on are not supported.

  Module* module = nullptr;
  std::string name;
  std::vector<KernelParameter> parameters;
  uint32_t parameters_size_bytes = 0;
  uint32_t block_threads_max = 1024;
  uint32_t static_shared_size_bytes = 0;
  std::atomic<uint32_t> dynamic_shared_size_bytes_max{48u << 10};
  // The server's number on each device; 0: not loaded there.
  std::array<std::atomic<uint32_t>, kDevicesMax> numbers{};
  std::mutex mutex;                 // Guards what follows.
  std::vector<int64_t> attributes;  // By CUfunction_attribute; empty: not asked yet.
  std::vector<std::pair<int, int>> attributes_set;
  std::unique_ptr<KeptLaunch> kept;
};

struct GlobalVariable {
  std::string name;
  uint64_t size_bytes = 0;
  bool is_constant = false;
  std::array<uint64_t, Kernel::kDevicesMax> addresses{};  // 0: not asked. Guarded by the module's.
};

struct Module {
  Device* device = nullptr;  // Of cuModuleLoad; nullptr: wherever it is used.
  bool is_library = false;
  std::vector<std::byte> copy;  // Of an image that is not the program's for ever.
  std::span<const std::byte> image;
  std::mutex mutex;  // Guards what follows.
  bool parsed = false;
  CUresult parse_code = CUDA_SUCCESS;
  std::unordered_map<std::string, Kernel*> kernels;
  std::vector<Kernel*> kernels_in_order;
  std::unordered_map<std::string, std::unique_ptr<GlobalVariable>> variables;
  std::array<uint32_t, Kernel::kDevicesMax> numbers{};  // 0: not loaded.
};

// 89 for 8.9.
[[nodiscard]] uint32_t capability_of(const Device& device);

[[nodiscard]] HandleTable<Module>& modules();
[[nodiscard]] HandleTable<Kernel>& kernels();

// `image`: what cuModuleLoadData takes. With `device` it is loaded there at once (without a wait).
[[nodiscard]] CUresult load_module(const void* image, Device* device, Module*& module);
// From bytes whose length is known; they are copied.
[[nodiscard]] CUresult load_module(std::span<const std::byte> image, Device* device,
                                   Module*& module);
void unload_module(Module& module);
// All modules: they are loaded there again when they are used.
void unload_from(Device& device);

// CUDA_ERROR_NOT_FOUND, or why the image is of no use.
[[nodiscard]] CUresult find_kernel(Module& module, std::string_view name, Kernel*& kernel);
[[nodiscard]] CUresult find_variable(Module& module, std::string_view name,
                                     GlobalVariable*& variable);
// The variable's address on a device: asks once.
[[nodiscard]] CUresult address_of(Module& module, GlobalVariable& variable, Device& device,
                                  uint64_t& address);
// The server's number of the kernel on the device, whose module is loaded there if it was not.
[[nodiscard]] CUresult number_on(Kernel& kernel, Device& device, uint32_t& number);
// By CUfunction_attribute; asks once.
[[nodiscard]] CUresult attribute_of(Kernel& kernel, Device& device, int attribute, int& value);
[[nodiscard]] CUresult set_attribute(Kernel& kernel, Device& device, int attribute, int value);

}  // namespace rgpu::cuda
