// RealDriver: devices, memory, modules. real/real_order.cc and real/real_work.cc have the rest.

#include "server/cuda/real_driver.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "server/event_mark.h"
#include "wire/cuda/fatbin.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;

constexpr int kAttributesEnd = 148;  // Of CUDA 13.0.
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
// What reaches memory of this process, other processes, or a file descriptor; clusters.
constexpr std::array kAttributesNotServed = {19,  83,  86,  88,  89,  91,  100, 101, 103,
                                             110, 112, 113, 116, 119, 120, 121, 124, 128,
                                             132, 141, 142, 143, 144, 145, 146, 147};
constexpr uint64_t kRangeSizeBytesMin = uint64_t{64} << 30;
constexpr uint64_t kRangeSizeBytesMax = uint64_t{1} << 46;
constexpr int kFunctionAttributesEnd = 16;
constexpr size_t kModulesMax = 1u << 16;
constexpr size_t kFunctionsMax = 1u << 20;
constexpr size_t kModuleLogBytes = 8192;
constexpr size_t kModuleLogToldBytes = 1024;
constexpr int kNotReady = 600;

Status failed(const char* what, int code) {
  return {Code::kDevice, std::string(what) + " fails with CUDA error " + std::to_string(code)};
}

}  // namespace

Result<std::unique_ptr<Driver>> make_real_driver() {
  Result<DriverSymbols> driver = load_driver_symbols();
  if (!driver) return driver.error();
  if (const int code = driver->init(0); code != kSuccess) {
    return Status(Code::kExhausted, "cuInit fails with CUDA error " + std::to_string(code));
  }
  int count = 0;
  if (driver->device_count(&count) != kSuccess || count <= 0) {
    return Status(Code::kExhausted, "the CUDA driver has no device");
  }
  return std::unique_ptr<Driver>(std::make_unique<RealDriver>(*driver));
}

RealDriver::RealDriver(const DriverSymbols& driver)
    : driver_(driver),
      pinned_(std::make_shared<PinnedPool>(driver)),
      deferred_([this](const Outcome& outcome) { fail_late(outcome); }) {}

RealDriver::~RealDriver() {
  deferred_.open_all();
  for (const std::unique_ptr<Device>& device : devices_) {
    use(*device);
    (void)driver_.synchronize();
  }
  {
    const std::lock_guard lock(cleanup_mutex_);
    closing_ = true;
  }
  cleanup_changed_.notify_all();
  if (cleaner_.joinable()) cleaner_.join();
  for (auto& [number, stream] : streams_) {
    stream.completions.reset();
    stream.watchers.clear();
    stream.staging = {};
  }
  fence_stream_.completions.reset();
  cleanups_.clear();
  events_.clear();
  last_fence_.reset();
  for (const auto& [number, stream] : streams_) {
    if (stream.stream != nullptr && stream.stream != cu_stream_legacy()) {
      use(*stream.device);
      (void)driver_.destroy_stream(stream.stream);
    }
  }
  for (const auto& [number, loaded] : modules_) {
    use(*loaded.device);
    (void)driver_.unload_module(loaded.module);
  }
  if (fence_stream_.stream != nullptr) {
    use(*fence_stream_.device);
    (void)driver_.destroy_stream(fence_stream_.stream);
  }
  // A reply may still hold host memory of the context's.
  const bool is_unused = pinned_->close();
  for (std::unique_ptr<Device>& device : devices_) {
    use(*device);
    const int number = device->number;
    device.reset();
    (void)driver_.set_context(nullptr);
    if (is_unused) (void)driver_.release_context(number);
  }
  output_.reset();
}

// ---- Devices ------------------------------------------------------------------------------------

Result<wire::CudaInfo> RealDriver::open(const wire::CudaHello& hello) {
  int count = 0;
  if (const int code = driver_.device_count(&count); code != kSuccess) {
    return failed("counting the devices", code);
  }
  if (count <= 0) return Status(Code::kExhausted, "the CUDA driver has no device");
  output_ = std::make_unique<OutputCapture>(print_ ? print_ : [](std::string_view) {});
  wire::CudaInfo info;
  (void)driver_.driver_version(&info.driver_version);
  for (int i = 0; i < count; ++i) {
    devices_.push_back(std::make_unique<Device>());
    RGPU_RETURN_IF_ERROR(describe(*devices_.back(), i, info));
  }
  info.address_size_bytes = hello.address_size_bytes;
  const Result<uint64_t> base = reserve_range(hello, info.address_size_bytes);
  if (!base) return base.error();
  info.address_base = *base;
  range_base_ = *base;
  device_part_size_bytes_ =
      calls::device_part_size_bytes(info.address_size_bytes, static_cast<uint32_t>(count));
  for (size_t i = 0; i < devices_.size(); ++i) {
    RGPU_RETURN_IF_ERROR(prepare(*devices_[i], *base + i * device_part_size_bytes_));
  }
  fence_stream_.device = devices_.front().get();
  if (const int code = make_stream(fence_stream_, kCuStreamNonBlocking, 0); code != kSuccess) {
    return failed("making a stream", code);
  }
  cleaner_ = std::thread([this] { run_cleanups(); });
  return info;
}

Status RealDriver::describe(Device& device, int ordinal, wire::CudaInfo& info) {
  std::array<char, 256> name{};
  CuUuid uuid{};
  size_t memory_size_bytes = 0;
  int code = driver_.device_get(&device.number, ordinal);
  if (code == kSuccess) code = driver_.device_name(name.data(), 255, device.number);
  if (code == kSuccess) code = driver_.device_uuid(&uuid, device.number);
  if (code == kSuccess) code = driver_.device_memory(&memory_size_bytes, device.number);
  if (code != kSuccess) return failed("describing a device", code);
  wire::CudaDevice described;
  described.name = name.data();
  const auto uuid_bytes = std::as_bytes(std::span(uuid.bytes));
  described.uuid.assign(uuid_bytes.begin(), uuid_bytes.end());
  described.memory_size_bytes = memory_size_bytes;
  described.attributes.resize(kAttributesEnd, 0);
  for (int i = 1; i < kAttributesEnd; ++i) {  // Those that this driver does not know stay 0.
    int value = 0;
    if (driver_.device_attribute(&value, i, device.number) == kSuccess) {
      described.attributes[static_cast<size_t>(i)] = value;
    }
  }
  device.compute_capability =
      static_cast<uint32_t>(described.attributes[kComputeCapabilityMajor] * 10 +
                            described.attributes[kComputeCapabilityMinor]);
  for (const int i : kAttributesNotServed) described.attributes[static_cast<size_t>(i)] = 0;
  info.devices.push_back(std::move(described));
  code = driver_.retain_context(&device.context, device.number);
  return code == kSuccess ? Status() : failed("making a device's context", code);
}

bool RealDriver::reserve_at(uint64_t base, uint64_t part_size_bytes) {
  const uint64_t size_bytes = calls::client_part_size_bytes(part_size_bytes);
  for (size_t i = 0; i < devices_.size(); ++i) {
    use(*devices_[i]);
    const uint64_t wanted = base + i * part_size_bytes;
    uint64_t address = 0;
    const int code = driver_.reserve(&address, size_bytes, 0, wanted, 0);
    if (code == kSuccess && address == wanted) continue;
    if (code == kSuccess) (void)driver_.unreserve(address, size_bytes);
    while (i != 0) (void)driver_.unreserve(base + --i * part_size_bytes, size_bytes);
    return false;
  }
  return true;
}

Result<uint64_t> RealDriver::reserve_range(const wire::CudaHello& hello, uint64_t& size_bytes) {
  if (hello.address_size_bytes > kRangeSizeBytesMax) {
    return Status(Code::kInvalidArgument, "the client asks for too large an address range");
  }
  const auto count = static_cast<uint32_t>(devices_.size());
  // A part of what the client offers will do as well.
  for (;;) {
    const uint64_t part = calls::device_part_size_bytes(size_bytes, count);
    if (part == 0) return Status(Code::kInvalidArgument, "the client's address range is too small");
    for (const uint64_t base : hello.address_bases) {
      if (base < calls::kNumberMax || base > UINT64_MAX / 2) continue;
      if (reserve_at(base, part)) return base;
    }
    if (size_bytes / 2 < kRangeSizeBytesMin) break;
    size_bytes /= 2;
  }
  return Status(Code::kExhausted, "the CUDA driver has none of the " +
                                      std::to_string(hello.address_bases.size()) +
                                      " address ranges that are free in the client");
}

Status RealDriver::prepare(Device& device, uint64_t base) {
  use(device);
  MappedMemory::Place place;
  place.device = device.number;
  place.base = base;
  place.size_bytes = calls::client_part_size_bytes(device_part_size_bytes_);
  const CuMemoryProperties properties{.location = {.device = device.number}};
  size_t granularity = 0;
  int code = driver_.granularity(&granularity, &properties, 0);
  if (code != kSuccess || granularity == 0) return failed("asking for the page size", code);
  place.granularity_bytes = granularity;
  for (const std::unique_ptr<Device>& other : devices_) {
    int can = other->number == device.number ? 1 : 0;
    if (can == 0) (void)driver_.device_can_access_peer(&can, other->number, device.number);
    if (can != 0) place.access.push_back({.location = {.device = other->number}});
  }
  device.memory = std::make_unique<MappedMemory>(driver_, std::move(place));
  device.marks = std::make_unique<EventPool>(driver_, kCuEventBlockingSync | kCuEventDisableTiming);
  device.events = std::make_unique<EventPool>(driver_, kCuEventBlockingSync);
  Mark reference;
  code = device.events->record(cu_stream_legacy(), reference);
  if (code == kSuccess) code = driver_.synchronize_event(reference->event);
  if (code != kSuccess) return failed("recording an event", code);
  device.clock = std::make_unique<EventClock>(driver_, std::move(reference), event_time_ns());
  return {};
}

RealDriver::Device* RealDriver::device_of(uint64_t address) {
  if (address < range_base_) return nullptr;
  const uint64_t at = (address - range_base_) / device_part_size_bytes_;
  return at < devices_.size() ? devices_[at].get() : nullptr;
}

Outcome RealDriver::set_limit(uint32_t device, int32_t limit, uint64_t value) {
  return deferred_.submit(
      [this, device, limit, value]() -> Outcome {
        use(*devices_[device]);
        return note(*devices_[device], driver_.set_limit(limit, value));
      },
      DeferredWork::Need::kNoGate);
}

// ---- Memory -------------------------------------------------------------------------------------

Outcome RealDriver::allocate(uint64_t address, uint64_t size_bytes) {
  Device* const device = device_of(address);
  if (device == nullptr) return {kInvalidValue, "an allocation outside the address range"};
  return deferred_.submit(
      [this, device, address, size_bytes] { return do_allocate(*device, address, size_bytes); });
}

Outcome RealDriver::do_allocate(Device& device, uint64_t address, uint64_t size_bytes) {
  use(device);
  MappedMemory& memory = *device.memory;
  const bool may_wait = !deferred_.is_closed();
  if (may_wait && memory.is_in_the_way(address, size_bytes)) finish_cleanups();
  Outcome outcome = memory.allocate(address, size_bytes);
  if (outcome.code == kOutOfMemory && may_wait && memory.unused_bytes() != 0) {
    finish_cleanups();
    outcome = memory.allocate(address, size_bytes);
  }
  return note(device, outcome.code, std::move(outcome.message));
}

Outcome RealDriver::free(uint64_t address) {
  Device* const device = device_of(address);
  if (device == nullptr) return {kInvalidValue, "a free outside the address range"};
  return deferred_.submit([this, device, address]() -> Outcome {
    std::vector<MappedMemory::Unused> unused;
    Outcome freed = device->memory->free(address, unused);
    return freed.ok() ? release_later(*device, std::move(unused)) : freed;
  });
}

void RealDriver::reset(uint32_t number) {
  (void)deferred_.submit([this, device = devices_[number].get()]() -> Outcome {
    std::vector<MappedMemory::Unused> unused;
    device->memory->free_all(unused);
    return release_later(*device, std::move(unused));
  });
}

Outcome RealDriver::release_later(Device& device, std::vector<MappedMemory::Unused> unused) {
  Mark mark;
  if (const int code = fence(mark); code != kSuccess) return note(device, code);
  if (unused.empty()) return {};
  clean_up(device, std::move(mark),
           [memory = device.memory.get(), unused = std::move(unused)] { memory->release(unused); });
  return {};
}

Driver::Memory RealDriver::memory(uint32_t number) {
  Device& device = *devices_[number];
  use(device);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  (void)note(device, driver_.memory_info(&free_bytes, &total_bytes));
  return {std::min<uint64_t>(free_bytes + device.memory->unused_bytes(), total_bytes), total_bytes};
}

// ---- Modules ------------------------------------------------------------------------------------

Outcome RealDriver::load_module(uint32_t module, uint32_t device, Bytes image) {
  // Loading may wait for the device.
  return deferred_.submit([this, module, to = devices_[device].get(),
                           image = std::move(image)] { return do_load(module, *to, image); },
                          DeferredWork::Need::kNoGate);
}

Outcome RealDriver::do_load(uint32_t number, Device& device, const Bytes& image) {
  if (modules_.size() >= kModulesMax) return {kOutOfMemory, "too many modules"};
  if (modules_.contains(number)) return {kInvalidValue, "a module's number is in use"};
  const auto images = ::rgpu::cuda::read_images(image.bytes);
  if (!images) return {kInvalidImage, images.error().message()};
  // The client laid the parameters out by this very image.
  const auto facts = ::rgpu::cuda::facts_for(*images, device.compute_capability);
  if (!facts) return {kInvalidImage, facts.error().message()};
  std::vector<std::byte> ended(image.bytes.begin(), image.bytes.end());
  ended.push_back(std::byte{0});  // PTX has no other end.
  std::vector<char> log(kModuleLogBytes, '\0');
  std::array options{kCuJitErrorLog, kCuJitErrorLogSizeBytes};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
  use(device);
  LoadedModule loaded{&device, nullptr, {}};
  const int code =
      driver_.load_module(&loaded.module, ended.data(), static_cast<unsigned>(options.size()),
                          options.data(), values.data());
  if (code != kSuccess) {
    std::string_view told(log.data());
    told = told.substr(0, std::min(told.find_last_not_of(" \n") + 1, kModuleLogToldBytes));
    return note(device, code, std::string(told));
  }
  for (const ::rgpu::cuda::KernelLayout& layout : facts->kernels) {
    loaded.layouts.emplace(layout.name, layout);
  }
  modules_.emplace(number, std::move(loaded));
  return {};
}

void RealDriver::unload_module(uint32_t number) {
  (void)deferred_.submit([this, number]() -> Outcome {
    const auto found = modules_.find(number);
    if (found == modules_.end()) return {};
    const LoadedModule loaded = std::move(found->second);
    modules_.erase(found);
    std::erase_if(functions_, [&](const auto& entry) { return entry.second.module == number; });
    Mark mark;
    if (const int code = fence(mark); code != kSuccess) return note(*loaded.device, code);
    clean_up(*loaded.device, std::move(mark),
             [this, module = loaded.module] { (void)driver_.unload_module(module); });
    return {};
  });
}

Outcome RealDriver::get_function(uint32_t function, uint32_t module, std::string_view name) {
  return deferred_.submit(
      [this, function, module, name = std::string(name)] {
        return do_get_function(function, module, name);
      },
      DeferredWork::Need::kNoGate);
}

Outcome RealDriver::do_get_function(uint32_t number, uint32_t module, const std::string& name) {
  if (functions_.size() >= kFunctionsMax) return {kOutOfMemory, "too many functions"};
  const auto found = modules_.find(module);
  if (found == modules_.end()) return {};  // Its loading failed, and that was said.
  const LoadedModule& loaded = found->second;
  const auto layout = loaded.layouts.find(name);
  if (layout == loaded.layouts.end()) return {kNotFound, "no kernel " + name};
  use(*loaded.device);
  Function function{loaded.device, module, nullptr, layout->second.parameters,
                    layout->second.parameters_size_bytes};
  int code = driver_.get_function(&function.function, loaded.module, name.c_str());
  // At its first launch it would be loaded behind work that may be waiting for the client.
  if (code == kSuccess && driver_.load_function != nullptr) {
    code = driver_.load_function(function.function);
  }
  if (code != kSuccess) return note(*loaded.device, code, "kernel " + name);
  if (Outcome checked = check_parameters(function, name); !checked.ok()) return checked;
  functions_[number] = std::move(function);
  return {};
}

Outcome RealDriver::check_parameters(const Function& function, const std::string& name) {
  if (driver_.parameter_info == nullptr) return {};
  const size_t count = function.parameters.size();
  for (size_t i = 0; i <= count; ++i) {
    size_t offset_bytes = 0;
    size_t size_bytes = 0;
    const int code = driver_.parameter_info(function.function, i, &offset_bytes, &size_bytes);
    const size_t expected = i < count ? function.parameters[i].size_bytes : 0;
    const bool is_right = i < count ? code == kSuccess && size_bytes == expected : code != kSuccess;
    if (is_right) continue;
    return {kInvalidImage, "kernel " + name + ": parameter " + std::to_string(i) + " has " +
                               std::to_string(size_bytes) + " bytes on the device and " +
                               std::to_string(expected) + " in the image that the client read"};
  }
  return {};
}

Outcome RealDriver::get_global(uint32_t module, std::string_view name, Variable& variable) {
  const auto found = modules_.find(module);
  if (found == modules_.end()) {
    if (deferred_.empty()) return {kInvalidHandle, "unknown module"};
    return {kNotReady, "a module is loaded once a host function of the program has returned"};
  }
  use(*found->second.device);
  size_t size_bytes = 0;
  const int code = driver_.get_global(&variable.address, &size_bytes, found->second.module,
                                      std::string(name).c_str());
  variable.size_bytes = size_bytes;
  return note(*found->second.device, code);
}

Outcome RealDriver::function_attributes(uint32_t number, std::vector<int32_t>& values) {
  const auto found = functions_.find(number);
  if (found == functions_.end()) {
    if (deferred_.empty()) return {kInvalidHandle, "unknown function"};
    return {kNotReady, "a kernel is loaded once a host function of the program has returned"};
  }
  use(*found->second.device);
  values.assign(kFunctionAttributesEnd, 0);
  for (int i = 0; i < kFunctionAttributesEnd; ++i) {  // Older drivers do not know the last ones.
    int value = 0;
    if (driver_.function_attribute(&value, i, found->second.function) == kSuccess) {
      values[static_cast<size_t>(i)] = value;
    }
  }
  return {};
}

Outcome RealDriver::set_function_attribute(uint32_t number, int32_t attribute, int32_t value) {
  return deferred_.submit([this, number, attribute, value]() -> Outcome {
    const auto found = functions_.find(number);
    if (found == functions_.end()) return {kInvalidHandle, "unknown function"};
    use(*found->second.device);
    return note(*found->second.device,
                driver_.set_function_attribute(found->second.function, attribute, value));
  });
}

}  // namespace rgpu::server::cuda
