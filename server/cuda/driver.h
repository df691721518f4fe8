// Driver: what a CUDA session needs of a GPU, in the shape of CUDA's driver. Two implementations:
// the real driver (real_driver.h) and the emulated device (emulated/emulated_driver.h); a third
// does nothing, for measuring what comes before it (null_driver.h).
//
// Work (upload … gate) is ordered on its stream, by events, and by the rules of the legacy default
// stream, which is each device's stream of index 0 (wire/stream.h). It is queued when the call
// returns.
//
// Threading: one thread at a time calls; callbacks come from the driver's own threads, those of one
//            stream in order. A callback may wait for the network, so streams are not to share
//            threads.
// Lifetime:  owners are held until the bytes were read. The destructor ends all work and joins.
// Errors:    what is known at once is returned. What fails later is given to every later callback
// of
//            that device: such a failure stays (CUDA calls it sticky).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/cuda/calls.h"
#include "wire/messages.h"
#include "wire/status.h"

namespace rgpu::server::cuda {

// CUresult's numbers, those that the server itself uses.
enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeviceUnavailable = 46,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kAssert = 710,
  kHardwareStackError = 714,
  kIllegalInstruction = 715,
  kMisalignedAddress = 716,
  kInvalidAddressSpace = 717,
  kInvalidPc = 718,
  kLaunchFailed = 719,
  kCooperativeLaunchTooLarge = 720,
  kNotSupported = 801,
  kUnknown = 999,
};

struct Outcome {
  int code = kSuccess;
  std::string message = {};  // What CUDA's own text does not say.
  [[nodiscard]] bool ok() const noexcept { return code == kSuccess; }
};
using wire::cuda::is_sticky;

struct Bytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class Driver {
 public:
  using Callback = std::function<void(const Outcome&)>;
  using Download = std::function<void(const Outcome&, Bytes)>;
  using Timed = std::function<void(const Outcome&, int64_t time_ns)>;
  struct Variable {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
  };
  struct Memory {
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
  };

  virtual ~Driver() = default;
  // Once, before all else. kExhausted when none of the address ranges is free here.
  [[nodiscard]] virtual Result<wire::CudaInfo> open(const wire::CudaHello& hello) = 0;
  // What kernels print, from any thread.
  virtual void on_print(std::function<void(std::string_view)> print) = 0;

  // ---- Memory. free() takes effect when all that was queued before on the device is done, and all
  // that is queued later comes after it, as if the caller had waited.
  [[nodiscard]] virtual Outcome allocate(uint64_t address, uint64_t size_bytes) = 0;
  [[nodiscard]] virtual Outcome free(uint64_t address) = 0;
  [[nodiscard]] virtual Memory memory(uint32_t device) = 0;
  virtual void reset(uint32_t device) = 0;  // Frees all, in the same way.

  // ---- Modules and functions, by numbers of the caller's.
  [[nodiscard]] virtual Outcome load_module(uint32_t module, uint32_t device, Bytes image) = 0;
  virtual void unload_module(uint32_t module) = 0;
  [[nodiscard]] virtual Outcome get_function(uint32_t function, uint32_t module,
                                             std::string_view name) = 0;
  [[nodiscard]] virtual Outcome get_global(uint32_t module, std::string_view name,
                                           Variable& variable) = 0;
  // By CUfunction_attribute.
  [[nodiscard]] virtual Outcome function_attributes(uint32_t function,
                                                    std::vector<int32_t>& values) = 0;
  [[nodiscard]] virtual Outcome set_function_attribute(uint32_t function, int32_t attribute,
                                                       int32_t value) = 0;
  [[nodiscard]] virtual Outcome set_limit(uint32_t device, int32_t limit, uint64_t value) = 0;

  // ---- Streams. Those that were not created wait for the legacy default stream.
  [[nodiscard]] virtual Outcome create_stream(uint32_t stream,
                                              const wire::cuda::CreateStream& options) = 0;
  virtual void destroy_stream(uint32_t stream) = 0;

  // ---- Work
  [[nodiscard]] virtual Outcome upload(uint32_t stream, Bytes source, const wire::cuda::Box& target,
                                       const wire::cuda::Extent& extent) = 0;
  virtual void download(uint32_t stream, const wire::cuda::Box& source,
                        const wire::cuda::Extent& extent, Download done) = 0;
  [[nodiscard]] virtual Outcome copy(uint32_t stream, const wire::cuda::Copy& copy) = 0;
  [[nodiscard]] virtual Outcome memset(uint32_t stream, const wire::cuda::Memset& memset) = 0;
  [[nodiscard]] virtual Outcome launch(uint32_t stream, const wire::cuda::Launch& launch,
                                       std::span<const std::byte> parameters) = 0;
  // Calls back when all before it on the stream is done, and then stands still until open_gate().
  virtual void gate(uint32_t stream, uint64_t gate, Callback reached) = 0;
  virtual void open_gate(uint64_t gate) = 0;
  virtual void when_done(uint32_t stream, Callback done) = 0;
  virtual void when_all_done(Callback done) = 0;  // On every stream of every device.

  // ---- Events, by numbers of the caller's
  [[nodiscard]] virtual Outcome record_event(uint32_t stream, uint64_t event) = 0;
  [[nodiscard]] virtual Outcome wait_event(uint32_t stream, uint64_t event) = 0;
  // The time at which the last recording was reached, on one clock for all.
  virtual void when_reached(uint64_t event, Timed done) = 0;
  virtual void free_event(uint64_t event) = 0;
};

}  // namespace rgpu::server::cuda
