// EmulatedDriver: a driver whose devices are this process: host memory, threads, a PTX interpreter.
//
// Threading, lifetime, errors: as server/cuda/driver.h says.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "server/cuda/driver.h"
#include "server/cuda/emulated/device_memory.h"
#include "server/cuda/emulated/ptx_module.h"
#include "server/cuda/emulated/ptx_run.h"
#include "server/cuda/emulated/streams.h"

namespace rgpu::server::cuda {

struct EmulatedOptions {
  uint32_t devices = 1;
  uint32_t compute_capability = 89;  // 89 is 8.9.
  uint64_t memory_size_bytes = 0;    // Of each device; 0: half of the machine's, over all devices.
  uint32_t threads = 0;              // That run blocks; 0: one per core.
  std::chrono::microseconds launch_delay{0};  // Before each kernel, on its stream.
};

class EmulatedDriver final : public Driver {
 public:
  explicit EmulatedDriver(const EmulatedOptions& options);
  ~EmulatedDriver() override;

  [[nodiscard]] Result<wire::CudaInfo> open(const wire::CudaHello& hello) override;
  void on_print(std::function<void(std::string_view)> print) override { print_ = std::move(print); }
  [[nodiscard]] Outcome allocate(uint64_t address, uint64_t size_bytes) override;
  [[nodiscard]] Outcome free(uint64_t address) override;
  [[nodiscard]] Memory memory(uint32_t device) override;
  void reset(uint32_t device) override;
  [[nodiscard]] Outcome load_module(uint32_t module, uint32_t device, Bytes image) override;
  void unload_module(uint32_t module) override;
  [[nodiscard]] Outcome get_function(uint32_t function, uint32_t module,
                                     std::string_view name) override;
  [[nodiscard]] Outcome get_global(uint32_t module, std::string_view name,
                                   Variable& variable) override;
  [[nodiscard]] Outcome function_attributes(uint32_t function,
                                            std::vector<int32_t>& values) override;
  [[nodiscard]] Outcome set_function_attribute(uint32_t function, int32_t attribute,
                                               int32_t value) override;
  [[nodiscard]] Outcome set_limit(uint32_t, int32_t, uint64_t) override { return {}; }
  [[nodiscard]] Outcome create_stream(uint32_t stream,
                                      const wire::cuda::CreateStream& options) override;
  void destroy_stream(uint32_t stream) override;
  [[nodiscard]] Outcome upload(uint32_t stream, Bytes source, const wire::cuda::Box& target,
                               const wire::cuda::Extent& extent) override;
  void download(uint32_t stream, const wire::cuda::Box& source, const wire::cuda::Extent& extent,
                Download done) override;
  [[nodiscard]] Outcome copy(uint32_t stream, const wire::cuda::Copy& copy) override;
  [[nodiscard]] Outcome memset(uint32_t stream, const wire::cuda::Memset& memset) override;
  [[nodiscard]] Outcome launch(uint32_t stream, const wire::cuda::Launch& launch,
                               std::span<const std::byte> parameters) override;
  void gate(uint32_t stream, uint64_t gate, Callback reached) override;
  void open_gate(uint64_t gate) override { streams_->open_gate(gate); }
  void when_done(uint32_t stream, Callback done) override;
  void when_all_done(Callback done) override;
  [[nodiscard]] Outcome record_event(uint32_t stream, uint64_t event) override;
  [[nodiscard]] Outcome wait_event(uint32_t stream, uint64_t event) override;
  void when_reached(uint64_t event, Timed done) override;
  void free_event(uint64_t event) override { events_.erase(event); }

 private:
  struct Device {
    std::unique_ptr<DeviceMemory> memory;
    std::mutex mutex;
    Outcome fault;  // The first one; it stays. Guarded by mutex.
    std::atomic<bool> faulted{false};

    void fail(int code, std::string message);
    [[nodiscard]] Outcome outcome();
  };
  struct LoadedModule {
    uint32_t device = 0;
    std::shared_ptr<ptx::Module> module;
  };
  struct Function {
    uint32_t device = 0;
    std::shared_ptr<ptx::Module> module;
    const ptx::Kernel* kernel = nullptr;
    uint32_t dynamic_shared_size_bytes_max = 0;
  };
  struct Recording {
    Streams::Mark mark;
    std::shared_ptr<std::atomic<int64_t>> time_ns;
  };
  struct Mapping;

  [[nodiscard]] Device& device_of_stream(uint32_t stream);
  // nullptr: the address is of no device.
  [[nodiscard]] Device* device_of(uint64_t address, uint32_t* index = nullptr);
  // Fails the stream's device when the box is not all in one live allocation.
  [[nodiscard]] bool check_box(Device& device, const char* what, const wire::cuda::Box& box,
                               const wire::cuda::Extent& extent);
  // Submits work that is left out when the device has failed.
  void submit(uint32_t stream, std::function<void(Device&)> work, uint64_t size_bytes = 0);
  [[nodiscard]] Outcome check_launch(const Function& function, const wire::cuda::Launch& launch,
                                     size_t parameters_size_bytes) const;
  void run(Device& device, const ptx::Launch& launch);

  const EmulatedOptions options_;
  std::function<void(std::string_view)> print_;
  std::unique_ptr<Mapping> mapping_;
  uint64_t device_part_size_bytes_ = 0;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unordered_map<uint32_t, LoadedModule> modules_;
  std::unordered_map<uint32_t, Function> functions_;
  std::unordered_map<uint64_t, Recording> events_;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<ptx::BlockPool> pool_;
  std::unique_ptr<Streams> streams_;  // Ends first: its threads use the rest.
};

}  // namespace rgpu::server::cuda
