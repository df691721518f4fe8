#include "server/cuda/emulated/emulated_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "server/cuda/emulated/device_attributes.h"
#include "server/event_mark.h"
#include "wire/limits.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;

constexpr int32_t kDriverVersion = 13000;
constexpr uint64_t kAddressSizeBytesMax = uint64_t{1} << 45;

uint64_t machine_memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint32_t threads_of(const EmulatedOptions& options) {
  return options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
}

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::byte* pointer(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

// Calls `row(offset in the box, offset if packed)` for each row; its bytes are consecutive.
template <typename Row>
void for_each_row(const calls::Box& box, const calls::Extent& extent, Row row) {
  uint64_t packed = 0;
  for (uint64_t z = 0; z < extent.depth; ++z) {
    for (uint64_t y = 0; y < extent.height; ++y) {
      row(z * box.slice_pitch_bytes + y * box.row_pitch_bytes, packed);
      packed += extent.width_bytes;
    }
  }
}

// From a box's first byte to behind its last one; false: too large to be true.
bool span_bytes(const calls::Box& box, const calls::Extent& extent, uint64_t& size_bytes) {
  if (extent.width_bytes == 0 || extent.height == 0 || extent.depth == 0) {
    size_bytes = 0;
    return true;
  }
  uint64_t rows = 0;
  uint64_t slices = 0;
  return !__builtin_mul_overflow(box.row_pitch_bytes, extent.height - 1, &rows) &&
         !__builtin_mul_overflow(box.slice_pitch_bytes, extent.depth - 1, &slices) &&
         !__builtin_add_overflow(rows, slices, &size_bytes) &&
         !__builtin_add_overflow(size_bytes, extent.width_bytes, &size_bytes) &&
         size_bytes <= limits::kStorageSizeBytesMax;
}

Outcome of_status(const Status& status) {
  return {status.code() == Code::kExhausted ? kOutOfMemory : kInvalidValue, status.message()};
}

void fill(std::byte* target, uint64_t size_bytes, uint32_t value, uint32_t unit) {
  if (unit == 1) {
    std::memset(target, static_cast<int>(value & 0xff), size_bytes);
    return;
  }
  for (uint64_t at = 0; at < size_bytes; at += unit) std::memcpy(target + at, &value, unit);
}

}  // namespace

// ---- Devices ------------------------------------------------------------------------------------

struct EmulatedDriver::Mapping {
  uint64_t base;
  uint64_t size_bytes;
  Mapping(uint64_t base, uint64_t size_bytes) : base(base), size_bytes(size_bytes) {}
  ~Mapping() { munmap(pointer(base), size_bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static std::unique_ptr<Mapping> at(uint64_t base, uint64_t size_bytes) {
    if (base % (uint64_t{1} << 21) != 0 || base < calls::kNumberMax) return nullptr;
    void* const mapped =
        mmap(pointer(base), size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    if (mapped != pointer(base)) {  // A kernel that does not know the flag.
      munmap(mapped, size_bytes);
      return nullptr;
    }
    (void)madvise(mapped, size_bytes, MADV_DONTDUMP);
    return std::make_unique<Mapping>(base, size_bytes);
  }
};

void EmulatedDriver::Device::fail(int code, std::string message) {
  const std::lock_guard lock(mutex);
  if (!fault.ok()) return;
  fault = {code, std::move(message)};
  faulted.store(true, std::memory_order_release);
}

Outcome EmulatedDriver::Device::outcome() {
  if (!faulted.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex);
  return fault;
}

EmulatedDriver::EmulatedDriver(const EmulatedOptions& options) : options_(options) {}

EmulatedDriver::~EmulatedDriver() {
  cancelled_ = true;
  streams_.reset();
}

Result<wire::CudaInfo> EmulatedDriver::open(const wire::CudaHello& hello) {
  if (hello.address_size_bytes > kAddressSizeBytesMax) {
    return Status(Code::kInvalidArgument, "the client asks for too large an address range");
  }
  const uint64_t part = calls::device_part_size_bytes(hello.address_size_bytes, options_.devices);
  if (part == 0) return Status(Code::kInvalidArgument, "the client's address range is too small");
  for (const uint64_t base : hello.address_bases) {
    if (mapping_ = Mapping::at(base, hello.address_size_bytes); mapping_) break;
  }
  if (!mapping_) {
    return Status(Code::kExhausted,
                  "none of the " + std::to_string(hello.address_bases.size()) +
                      " address ranges that are free in the client is free in the server");
  }
  device_part_size_bytes_ = part;
  const uint64_t memory = options_.memory_size_bytes != 0
                              ? options_.memory_size_bytes
                              : machine_memory_bytes() / 2 / options_.devices;
  wire::CudaInfo info{.driver_version = kDriverVersion,
                      .emulated = true,
                      .address_base = mapping_->base,
                      .address_size_bytes = mapping_->size_bytes};
  for (uint32_t i = 0; i < options_.devices; ++i) {
    auto device = std::make_unique<Device>();
    device->memory = std::make_unique<DeviceMemory>(mapping_->base + i * part, part, memory);
    for (const auto& other : devices_) {
      device->memory->add_peer(*other->memory);
      other->memory->add_peer(*device->memory);
    }
    devices_.push_back(std::move(device));
    std::vector<std::byte> uuid(16, std::byte{0});
    std::memcpy(uuid.data(), "rgpu-emulated", 13);
    uuid[15] = static_cast<std::byte>(i);
    info.devices.push_back({"rgpu emulated device", std::move(uuid), memory,
                            device_attributes(i, options_.compute_capability)});
  }
  pool_ = std::make_unique<ptx::BlockPool>(threads_of(options_));
  streams_ = std::make_unique<Streams>();
  return info;
}

EmulatedDriver::Device& EmulatedDriver::device_of_stream(uint32_t stream) {
  return *devices_[wire::device_of_stream(stream)];
}

EmulatedDriver::Device* EmulatedDriver::device_of(uint64_t address, uint32_t* index) {
  if (address < mapping_->base) return nullptr;
  const uint64_t at = (address - mapping_->base) / device_part_size_bytes_;
  if (at >= devices_.size()) return nullptr;
  if (index != nullptr) *index = static_cast<uint32_t>(at);
  return devices_[at].get();
}

// ---- Memory -------------------------------------------------------------------------------------

Outcome EmulatedDriver::allocate(uint64_t address, uint64_t size_bytes) {
  uint32_t index = 0;
  Device* const device = device_of(address, &index);
  if (device == nullptr) return {kInvalidValue, "an allocation outside the address range"};
  // What was there before may be on its way to be freed.
  if (streams_->fenced(index)) {
    streams_->fence(index, [device, address, size_bytes] {
      if (const Status status = device->memory->allocate_at(address, size_bytes); !status.ok()) {
        device->fail(kOutOfMemory, status.message());
      }
    });
    return {};
  }
  const Status status = device->memory->allocate_at(address, size_bytes);
  return status.ok() ? Outcome{} : of_status(status);
}

Outcome EmulatedDriver::free(uint64_t address) {
  uint32_t index = 0;
  Device* const device = device_of(address, &index);
  if (device == nullptr) return {kInvalidValue, "a free outside the address range"};
  streams_->fence(index, [device, address] { (void)device->memory->free_at(address); });
  return {};
}

Driver::Memory EmulatedDriver::memory(uint32_t device) {
  const DeviceMemory& memory = *devices_[device]->memory;
  return {memory.free_size_bytes(), memory.size_bytes()};
}

void EmulatedDriver::reset(uint32_t device) {
  streams_->fence(device, [at = devices_[device].get()] { at->memory->free_all(); });
}

// ---- Streams ------------------------------------------------------------------------------------

Outcome EmulatedDriver::create_stream(uint32_t stream, const calls::CreateStream& options) {
  streams_->create(stream, (options.flags & calls::CreateStream::kNonBlocking) != 0);
  return {};
}

void EmulatedDriver::destroy_stream(uint32_t stream) { streams_->destroy(stream); }

void EmulatedDriver::submit(uint32_t stream, std::function<void(Device&)> work,
                            uint64_t size_bytes) {
  streams_->submit(
      stream,
      [&device = device_of_stream(stream), work = std::move(work)] {
        if (!device.faulted.load(std::memory_order_acquire)) work(device);
      },
      size_bytes);
}

void EmulatedDriver::gate(uint32_t stream, uint64_t gate, Callback reached) {
  streams_->gate(stream, gate, [&device = device_of_stream(stream), reached = std::move(reached)] {
    reached(device.outcome());
  });
}

void EmulatedDriver::when_done(uint32_t stream, Callback done) {
  streams_->submit(stream, [&device = device_of_stream(stream), done = std::move(done)] {
    done(device.outcome());
  });
}

void EmulatedDriver::when_all_done(Callback done) {
  streams_->after_all([this, done = std::move(done)] {
    Outcome outcome;
    for (const std::unique_ptr<Device>& device : devices_) {
      if (outcome.ok()) outcome = device->outcome();
    }
    done(outcome);
  });
}

// ---- Events -------------------------------------------------------------------------------------

Outcome EmulatedDriver::record_event(uint32_t stream, uint64_t event) {
  auto time_ns = std::make_shared<std::atomic<int64_t>>(0);
  const Streams::Mark mark = streams_->submit(
      stream, [time_ns] { time_ns->store(event_time_ns(), std::memory_order_release); });
  events_[event] = {mark, std::move(time_ns)};
  return {};
}

Outcome EmulatedDriver::wait_event(uint32_t stream, uint64_t event) {
  const auto found = events_.find(event);
  if (found == events_.end()) return {kInvalidHandle, "unknown event"};
  streams_->wait_for(stream, found->second.mark);
  return {};
}

void EmulatedDriver::when_reached(uint64_t event, Timed done) {
  const auto found = events_.find(event);
  if (found == events_.end()) return done({kInvalidHandle, "unknown event"}, 0);
  const Recording& recording = found->second;
  streams_->after(recording.mark, [&device = device_of_stream(recording.mark.stream),
                                   time_ns = recording.time_ns, done = std::move(done)] {
    done(device.outcome(), time_ns->load(std::memory_order_acquire));
  });
}

// ---- Work ---------------------------------------------------------------------------------------

bool EmulatedDriver::check_box(Device& device, const char* what, const calls::Box& box,
                               const calls::Extent& extent) {
  uint64_t size_bytes = 0;
  Device* const owner = device_of(box.address);
  if (span_bytes(box, extent, size_bytes) &&
      (size_bytes == 0 || (owner != nullptr && owner->memory->holds(box.address, size_bytes)))) {
    return true;
  }
  device.fail(kIllegalAddress, std::string(what) + " of " + std::to_string(size_bytes) +
                                   " bytes at " + hex(box.address) +
                                   " is not within one allocation");
  return false;
}

Outcome EmulatedDriver::upload(uint32_t stream, Bytes source, const calls::Box& target,
                               const calls::Extent& extent) {
  const uint64_t size_bytes = source.bytes.size();
  submit(
      stream,
      [this, source = std::move(source), target, extent](Device& device) {
        if (!check_box(device, "a copy to device memory", target, extent)) return;
        for_each_row(target, extent, [&](uint64_t offset, uint64_t packed) {
          std::memcpy(pointer(target.address + offset), source.bytes.data() + packed,
                      extent.width_bytes);
        });
      },
      size_bytes);
  return {};
}

void EmulatedDriver::download(uint32_t stream, const calls::Box& source,
                              const calls::Extent& extent, Download done) {
  streams_->submit(stream, [this, &device = device_of_stream(stream), source, extent,
                            done = std::move(done)] {
    if (device.faulted || !check_box(device, "a copy from device memory", source, extent)) {
      done(device.outcome(), {});
      return;
    }
    auto bytes =
        std::make_shared<std::vector<std::byte>>(extent.width_bytes * extent.height * extent.depth);
    for_each_row(source, extent, [&](uint64_t offset, uint64_t packed) {
      std::memcpy(bytes->data() + packed, pointer(source.address + offset), extent.width_bytes);
    });
    done({}, {*bytes, bytes});
  });
}

Outcome EmulatedDriver::copy(uint32_t stream, const calls::Copy& copy) {
  submit(stream, [this, copy](Device& device) {
    if (!check_box(device, "a copy's source", copy.source, copy.extent) ||
        !check_box(device, "a copy's target", copy.target, copy.extent)) {
      return;
    }
    for (uint64_t z = 0; z < copy.extent.depth; ++z) {
      for (uint64_t y = 0; y < copy.extent.height; ++y) {
        const auto row = [&](const calls::Box& box) {
          return pointer(box.address + z * box.slice_pitch_bytes + y * box.row_pitch_bytes);
        };
        std::memmove(row(copy.target), row(copy.source), copy.extent.width_bytes);
      }
    }
  });
  return {};
}

Outcome EmulatedDriver::memset(uint32_t stream, const calls::Memset& memset) {
  submit(stream, [this, memset](Device& device) {
    if (!check_box(device, "a memset", memset.target, memset.extent)) return;
    for_each_row(memset.target, memset.extent, [&](uint64_t offset, uint64_t) {
      fill(pointer(memset.target.address + offset), memset.extent.width_bytes, memset.value,
           memset.value_size_bytes);
    });
  });
  return {};
}

Outcome EmulatedDriver::check_launch(const Function& function, const calls::Launch& launch,
                                     size_t parameters_size_bytes) const {
  const ptx::Kernel& kernel = *function.kernel;
  if (parameters_size_bytes != kernel.parameter_size_bytes) {
    return {kInvalidValue,
            "kernel " + kernel.name + " takes " + std::to_string(kernel.parameter_size_bytes) +
                " bytes of parameters, not " + std::to_string(parameters_size_bytes)};
  }
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0 || launch.block[i] > kThreadsPerBlockMax) {
      return {kInvalidValue, "a grid or block of no such size"};
    }
    threads *= launch.block[i];
  }
  if (threads > kernel.threads_max) {
    return {kInvalidValue, "kernel " + kernel.name + " takes " +
                               std::to_string(kernel.threads_max) + " threads a block at most"};
  }
  if (launch.dynamic_shared_size_bytes > function.dynamic_shared_size_bytes_max) {
    return {kInvalidValue, "kernel " + kernel.name + " may have " +
                               std::to_string(function.dynamic_shared_size_bytes_max) +
                               " bytes of dynamic shared memory"};
  }
  return {};
}

Outcome EmulatedDriver::launch(uint32_t stream, const calls::Launch& launch,
                               std::span<const std::byte> parameters) {
  const auto found = functions_.find(launch.function);
  if (found == functions_.end()) return {kInvalidHandle, "unknown function"};
  const Function& function = found->second;
  if (Outcome checked = check_launch(function, launch, parameters.size()); !checked.ok()) {
    return checked;
  }
  ptx::Launch run_this;
  run_this.kernel = function.kernel;
  run_this.module = function.module;
  std::copy_n(launch.grid, 3, run_this.grid.begin());
  std::copy_n(launch.block, 3, run_this.block.begin());
  run_this.dynamic_shared_size_bytes = launch.dynamic_shared_size_bytes;
  run_this.cooperative = (launch.flags & calls::Launch::kCooperative) != 0;
  run_this.parameters.assign(parameters.begin(), parameters.end());
  submit(stream, [this, run_this = std::move(run_this)](Device& device) { run(device, run_this); });
  return {};
}

void EmulatedDriver::run(Device& device, const ptx::Launch& launch) {
  if (options_.launch_delay.count() != 0) std::this_thread::sleep_for(options_.launch_delay);
  ptx::RunEnvironment environment;
  environment.pool = pool_.get();
  environment.print = print_;
  environment.clock_khz = kClockKhz;
  environment.multiprocessor_count = kMultiprocessors;
  environment.cancelled = &cancelled_;
  ptx::Fault fault = ptx::run(launch, environment);
  if (fault.code != 0) device.fail(fault.code, std::move(fault.message));
}

}  // namespace rgpu::server::cuda
