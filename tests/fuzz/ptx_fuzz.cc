// Any text either loads or says in one line why not; every kernel that loads runs, on one thread
// and for a while, without touching memory that is not its own.
#include <atomic>
#include <cstdlib>
#include <map>

#include "server/cuda/emulated/ptx_run.h"

namespace {

using namespace rgpu::server::ptx;

constexpr uint64_t kMemoryMax = 1 << 22;
constexpr uint64_t kRoundsMax = 12;

// Small, and it counts how often the interpreter looks at it: a kernel ends after some rounds.
class FuzzMemory : public Memory {
 public:
  // What a kernel allocated and could not free is left.
  ~FuzzMemory() override {
    for (const auto& [address, size] : blocks_) std::free(reinterpret_cast<void*>(address));
  }
  Interval find(uint64_t address) const override {
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return {};
    const auto& [begin, size] = *std::prev(after);
    return address < begin + size ? Interval{begin, begin + size} : Interval{};
  }
  rgpu::Result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment) override {
    if (size_bytes > kMemoryMax - used_) return rgpu::Status(rgpu::Code::kExhausted, "full");
    void* memory =
        std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
    blocks_[reinterpret_cast<uint64_t>(memory)] = size_bytes;
    used_ += size_bytes;
    return reinterpret_cast<uint64_t>(memory);
  }
  bool free(uint64_t address) override {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return false;
    std::free(reinterpret_cast<void*>(address));
    used_ -= found->second;
    blocks_.erase(found);
    ++frees_;
    return true;
  }
  uint64_t epoch() const override {
    if (++rounds_ > kRoundsMax) cancelled = true;
    return frees_;
  }
  void begin() {
    rounds_ = 0;
    cancelled = false;
  }
  mutable std::atomic<bool> cancelled = false;

 private:
  std::map<uint64_t, uint64_t> blocks_;
  uint64_t used_ = 0;
  uint64_t frees_ = 0;
  mutable uint64_t rounds_ = 0;
};

void run_all(const std::shared_ptr<Module>& module, FuzzMemory& memory) {
  static BlockPool pool(1);
  RunEnvironment environment;
  environment.pool = &pool;
  environment.cancelled = &memory.cancelled;
  for (const Kernel& kernel : module->kernels()) {
    Launch launch;
    launch.module = module;
    launch.kernel = &kernel;
    launch.block = {40, 1, 1};
    launch.parameters.resize(kernel.parameter_size_bytes);
    memory.begin();
    const Fault fault = run(launch, environment);
    RGPU_CHECK(fault.code == FaultCode::kNone || !fault.message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  FuzzMemory memory;
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  auto module = Module::load(text, {.memory = &memory});
  if (!module) {
    RGPU_CHECK(!module.error().message().empty());
    return 0;
  }
  run_all(*module, memory);
  return 0;
}
