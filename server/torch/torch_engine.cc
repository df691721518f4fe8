#include "server/torch/torch_engine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "server/crash_report.h"
#include "server/thread_executor.h"
#include "server/torch/accelerator_executor.h"
#include "server/torch/batch_decoder.h"
#include "server/torch/cpu_allocator.h"
#include "server/torch/device.h"
#include "wire/limits.h"

namespace rgpu::server {
namespace {

// The number of devices of an accelerator, counted by a child process: a process that has
// initialised CUDA can no longer fork workers that use it.
uint32_t count_devices(c10::DeviceType type) {
  if (!c10::impl::hasDeviceGuardImpl(type)) return 0;
  const pid_t child = fork();
  if (child == 0) _exit(c10::impl::VirtualGuardImpl(type).deviceCount());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 0;
  return static_cast<uint32_t>(WEXITSTATUS(status));
}

class TorchEngine final : public Engine {
 public:
  TorchEngine(const TorchEngineOptions& options, const EngineContext& context) : state_(context) {
    const c10::DeviceType type = c10::Device(options.device).type();
    uint32_t count = options.devices;
    if (type != c10::DeviceType::CPU) {
      at::globalContext().lazyInitDevice(type);
      count = static_cast<uint32_t>(c10::impl::VirtualGuardImpl(type).deviceCount());
    }
    count = std::min(count, limits::kDevicesMax);
    state_.device_type = type;
    for (uint32_t i = 0; i < count; ++i) {
      state_.ledgers.emplace_back(i, options.memory_limit_bytes);
    }
    if (options.threads != 0) at::set_num_threads(static_cast<int>(options.threads));
    if (type == c10::DeviceType::CPU) use_cpu_allocator();
    state_.allocator = c10::GetAllocator(type);
    state_.graphs = std::make_unique<GraphShelf>(
        CompilerOptions{options.compiler, options.graph_cache, options.graph_cache_size_bytes},
        type);
    info_.torch_version = RGPU_TORCH_VERSION;
    info_.device_type = options.device;
    info_.devices = device_infos(type, count, options.memory_limit_bytes);
    if (state_.on_cpu()) {
      executor_ = std::make_unique<ThreadExecutor>(context.clock, [options] {
        crash_report::use_thread_stack();
        if (options.threads != 0) at::set_num_threads(static_cast<int>(options.threads));
      });
    } else {
      executor_ = std::make_unique<AcceleratorExecutor>(type);
    }
    decoder_.emplace(state_, *executor_);
  }
  ~TorchEngine() override { executor_.reset(); }  // Its threads use the decoder's runners.

  [[nodiscard]] const EngineInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Status greet(const wire::Hello& hello) override {
    state_.client_torch_version = hello.torch_version;
    return {};
  }
  [[nodiscard]] Result<Segment> allocate_segment(uint64_t size_bytes) override {
    try {
      return make_segment(size_bytes);
    } catch (const std::exception&) {
      return Status(Code::kExhausted, "the server has no memory for a payload of " +
                                          std::to_string(size_bytes) + " bytes");
    }
  }
  void apply(std::unique_ptr<IncomingBatch> batch) override { decoder_->decode(std::move(batch)); }

 private:
  EngineState state_;
  EngineInfo info_;
  std::unique_ptr<Executor> executor_;
  std::optional<BatchDecoder> decoder_;
};

}  // namespace

Result<std::string> resolve_device_type(const TorchEngineOptions& options) {
  if (options.device == "cpu") return options.device;
  const std::string accelerator = options.device == "auto" ? "cuda" : options.device;
  const c10::DeviceType type = c10::Device(accelerator).type();
  if (count_devices(type) != 0) return accelerator;
  if (options.device == "auto") return std::string("cpu");
  return Status(Code::kInvalidArgument,
                "--device " + options.device + ": PyTorch " TORCH_VERSION " finds no such device");
}

const char* torch_version() noexcept { return TORCH_VERSION; }

std::unique_ptr<Engine> make_torch_engine(const TorchEngineOptions& options,
                                          const EngineContext& context) {
  return std::make_unique<TorchEngine>(options, context);
}

}  // namespace rgpu::server
