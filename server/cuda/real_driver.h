// RealDriver: GPUs, through NVIDIA's libcuda.so.1.
//
// Threading: as server/cuda/driver.h says. Each stream has a thread that waits for its marks and
//            calls back; another one unmaps memory when nothing uses it any more.
// Lifetime:  each device's primary context is held from open() to the destructor, which opens all
//            gates, waits for the devices, and drops what nobody can be told any more.
// Errors:    as driver.h says. What work fails of that had to wait for a host function (see
//            real/deferred_work.h) is given to the next callback.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/cuda/driver.h"
#include "server/cuda/real/completions.h"
#include "server/cuda/real/deferred_work.h"
#include "server/cuda/real/driver_symbols.h"
#include "server/cuda/real/event_clock.h"
#include "server/cuda/real/mapped_memory.h"
#include "server/cuda/real/output_capture.h"
#include "server/cuda/real/pinned_pool.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::server::cuda {

// kUnimplemented when there is no driver, kExhausted when it has no device. To be called in the
// process that uses it, after its last fork.
[[nodiscard]] Result<std::unique_ptr<Driver>> make_real_driver();

class RealDriver final : public Driver {
 public:
  explicit RealDriver(const DriverSymbols& driver);
  ~RealDriver() override;

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
  [[nodiscard]] Outcome set_limit(uint32_t device, int32_t limit, uint64_t value) override;
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
  void open_gate(uint64_t gate) override { deferred_.open(gate); }
  void when_done(uint32_t stream, Callback done) override;
  void when_all_done(Callback done) override;
  [[nodiscard]] Outcome record_event(uint32_t stream, uint64_t event) override;
  [[nodiscard]] Outcome wait_event(uint32_t stream, uint64_t event) override;
  void when_reached(uint64_t event, Timed done) override;
  void free_event(uint64_t event) override;

 private:
  struct Device {
    int number = 0;  // The driver's.
    CuContext context = nullptr;
    uint32_t compute_capability = 0;
    std::unique_ptr<EventPool> marks;   // For knowing that something is done, and
    std::unique_ptr<EventPool> events;  // for knowing when.
    std::unique_ptr<EventClock> clock;
    std::unique_ptr<MappedMemory> memory;
    std::mutex mutex;
    Outcome fault;  // The first one that stays. Guarded by mutex.
  };
  // Copies to the device: their bytes, one after another in a block that the device reads.
  struct Staging {
    std::shared_ptr<PinnedBlock> block;
    uint64_t used_bytes = 0;
  };
  // Waits for events of a stream in the order of their recording: one that is asked about after a
  // later one is another watcher's.
  struct Watcher {
    uint64_t last_serial = 0;
    std::unique_ptr<Completions> completions;
  };
  struct Stream {
    Device* device = nullptr;
    CuStream stream = nullptr;
    unsigned flags = 0;
    int priority = 0;
    bool is_dirty = false;       // It has work that join() does not know of.
    uint64_t fences_waited = 0;  // It comes after the work that so many fences came after.
    Staging staging;
    std::unique_ptr<Completions> completions;
    std::vector<Watcher> watchers;
  };
  struct LoadedModule {
    Device* device = nullptr;
    CuModule module = nullptr;
    std::unordered_map<std::string, ::rgpu::cuda::KernelLayout> layouts;
  };
  struct Function {
    Device* device = nullptr;
    uint32_t module = 0;
    CuFunction function = nullptr;
    std::vector<::rgpu::cuda::KernelParameter> parameters;
    uint32_t parameters_size_bytes = 0;
  };
  struct Recording {
    Device* device = nullptr;
    uint32_t stream = 0;
    uint64_t serial = 0;  // Grows.
    Mark mark;
  };
  struct Cleanup {
    Device* device = nullptr;
    Mark mark;
    std::function<void()> work;
  };

  // ---- Devices
  [[nodiscard]] Status describe(Device& device, int ordinal, wire::CudaInfo& info);
  [[nodiscard]] Result<uint64_t> reserve_range(const wire::CudaHello& hello, uint64_t& size_bytes);
  [[nodiscard]] bool reserve_at(uint64_t base, uint64_t part_size_bytes);
  [[nodiscard]] Status prepare(Device& device, uint64_t base);
  [[nodiscard]] Device* device_of(uint64_t address);
  void use(const Device& device) { (void)driver_.set_context(device.context); }
  // The call's own outcome; failures that stay are remembered.
  Outcome note(Device& device, int code, std::string message = {});
  // What a callback is given: the device's fault, else what deferred work failed of, else `code`.
  [[nodiscard]] Outcome outcome_of(Device& device, int code);
  void fail_late(const Outcome& outcome);

  // ---- Order
  // The stream, made at its first use, behind the last fence; its context is current. nullptr:
  // `failed` says why.
  [[nodiscard]] Stream* stream_for_work(uint32_t number, Outcome& failed);
  [[nodiscard]] Stream* find_stream(uint32_t number, Outcome& failed);
  [[nodiscard]] int make_stream(Stream& stream, unsigned flags, int priority);
  [[nodiscard]] int join(Stream& stream);  // The fence stream waits for all of its work so far,
  [[nodiscard]] int join_all();            // for that of all streams.
  // All that was queued before comes before all that is queued later. `mark`: between them.
  [[nodiscard]] int fence(Mark& mark);
  // Calls back from the stream's thread when all that is on it is done.
  void complete(Stream& stream, Completions::Callback callback);
  void complete_on(Completions& completions, Mark mark, int code, Completions::Callback callback);
  [[nodiscard]] Completions& watcher_of(const Recording& recording);
  void clean_up(Device& device, Mark mark, std::function<void()> work);
  void run_cleanups();
  // Waits until all cleanups were done; not while a gate is closed.
  void finish_cleanups();

  // ---- Work, once it goes through
  [[nodiscard]] Outcome do_allocate(Device& device, uint64_t address, uint64_t size_bytes);
  [[nodiscard]] Outcome release_later(Device& device, std::vector<MappedMemory::Unused> unused);
  [[nodiscard]] Outcome do_load(uint32_t module, Device& device, const Bytes& image);
  [[nodiscard]] Outcome do_get_function(uint32_t function, uint32_t module,
                                        const std::string& name);
  [[nodiscard]] Outcome check_parameters(const Function& function, const std::string& name);
  [[nodiscard]] Outcome do_create_stream(uint32_t stream, const wire::cuda::CreateStream& options);
  [[nodiscard]] Outcome do_upload(uint32_t stream, const Bytes& source,
                                  const wire::cuda::Box& target, const wire::cuda::Extent& extent);
  [[nodiscard]] Outcome do_download(uint32_t stream, const wire::cuda::Box& source,
                                    const wire::cuda::Extent& extent, const Download& done);
  [[nodiscard]] Outcome do_copy(uint32_t stream, const wire::cuda::Copy& copy);
  [[nodiscard]] Outcome do_memset(uint32_t stream, const wire::cuda::Memset& memset);
  [[nodiscard]] Outcome do_launch(uint32_t stream, const wire::cuda::Launch& launch,
                                  std::span<const std::byte> parameters);
  // Room for bytes on their way to the device; nullptr: there is none.
  [[nodiscard]] std::byte* stage(Stream& stream, uint64_t size_bytes,
                                 std::shared_ptr<PinnedBlock>& own_block);
  void retire_staging(Stream& stream);
  void run_in_order(std::function<Outcome()> work, const Callback& refused);

  const DriverSymbols driver_;
  std::function<void(std::string_view)> print_;
  std::unique_ptr<OutputCapture> output_;
  std::shared_ptr<PinnedPool> pinned_;
  uint64_t range_base_ = 0;
  uint64_t device_part_size_bytes_ = 0;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unordered_map<uint32_t, LoadedModule> modules_;
  std::unordered_map<uint32_t, Function> functions_;
  std::unordered_map<uint64_t, Recording> events_;
  std::unordered_map<uint32_t, Stream> streams_;
  std::vector<Stream*> dirty_streams_;
  // Of the first device: it comes after what was joined. Its events order streams of all devices.
  Stream fence_stream_;
  uint64_t fences_ = 0;
  bool joined_since_fence_ = false;
  Mark last_fence_;
  std::vector<void*> launch_arguments_;
  uint64_t recordings_ = 0;

  std::mutex late_mutex_;
  Outcome late_failure_;          // Of deferred work, not told yet. Guarded by late_mutex_.
  std::mutex cleanup_mutex_;      // Guards what follows.
  std::deque<Cleanup> cleanups_;  // The front one is being done.
  bool closing_ = false;
  std::condition_variable cleanup_changed_;
  DeferredWork deferred_;
  std::thread cleaner_;
};

}  // namespace rgpu::server::cuda
