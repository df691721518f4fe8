// How fast does the interpreter run kernels?
//
// Run: server_cuda_ptx_bench. Look for `lane_instructions`: executed PTX instructions times active
// lanes a second. The product of two 512 x 512 matrices in 16 x 16 tiles, bounds checks on, is to
// reach 200 million on one core (threads:1) and to use all of them (threads:0). The baseline is the
// same product on the host, one core, plain loops: `products` counts multiply-adds.
#include <benchmark/benchmark.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "server/cuda/emulated/ptx_run.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint32_t kN = 512;

// Three matrices and what a module asks for: one piece of memory.
class BenchMemory : public Memory {
 public:
  explicit BenchMemory(size_t size_bytes) : bytes_(size_bytes) {}
  Interval find(uint64_t address) const override {
    const uint64_t begin = this->begin();
    if (address < begin || address >= begin + bytes_.size()) return {};
    return {begin, begin + bytes_.size()};
  }
  Result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment) override {
    used_ = (used_ + alignment - 1) / alignment * alignment;
    if (used_ + size_bytes > bytes_.size()) return Status(Code::kExhausted, "out of memory");
    const uint64_t address = begin() + used_;
    used_ += size_bytes;
    return address;
  }
  bool free(uint64_t) override { return true; }
  uint64_t epoch() const override { return 0; }

 private:
  uint64_t begin() const { return reinterpret_cast<uint64_t>(bytes_.data() + 255) / 256 * 256; }
  std::vector<std::byte> bytes_;
  uint64_t used_ = 0;
};

void matrix_product(benchmark::State& state) {
  std::ifstream file(RGPU_PTX_KERNELS "/ordinary.ptx");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  BenchMemory memory(size_t{16} << 20);
  const auto module = Module::load(text, {.memory = &memory});
  BlockPool pool(static_cast<uint32_t>(state.range(0)));
  Launch launch;
  launch.module = *module;
  launch.kernel = (*module)->kernel("matmul");
  launch.grid = {kN / 16, kN / 16, 1};
  launch.block = {16, 16, 1};
  uint64_t arguments[4] = {0, 0, 0, kN};
  for (size_t i = 0; i < 3; ++i) {
    arguments[i] = *memory.allocate(kN * kN * sizeof(float), 256);
    auto* values = reinterpret_cast<float*>(arguments[i]);
    for (uint32_t k = 0; k < kN * kN; ++k) values[k] = static_cast<float>(k % 17) / 16.0F;
  }
  launch.parameters.resize(launch.kernel->parameter_size_bytes);
  std::memcpy(launch.parameters.data(), arguments, launch.parameters.size());
  RunEnvironment environment;
  environment.pool = &pool;
  uint64_t executed = 0;
  for (auto _ : state) {
    const Fault fault = run(launch, environment);
    if (fault.code != 0) state.SkipWithError(fault.message.c_str());
    executed += environment.executed_lane_instructions;
  }
  state.counters["lane_instructions"] =
      benchmark::Counter(static_cast<double>(executed), benchmark::Counter::kIsRate);
  state.counters["products"] = benchmark::Counter(
      double{kN} * kN * kN * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(matrix_product)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(0)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void host_product(benchmark::State& state) {
  std::vector<float> a(kN * kN, 0.5F);
  std::vector<float> b(kN * kN, 0.25F);
  std::vector<float> c(kN * kN);
  for (auto _ : state) {
    for (size_t i = 0; i < kN; ++i) {
      for (size_t k = 0; k < kN; ++k) {
        for (size_t j = 0; j < kN; ++j) c[i * kN + j] += a[i * kN + k] * b[k * kN + j];
      }
    }
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["products"] = benchmark::Counter(
      double{kN} * kN * kN * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(host_product)->UseRealTime()->Unit(benchmark::kMillisecond);

void load_module(benchmark::State& state) {
  std::ifstream file(RGPU_PTX_KERNELS "/ordinary.ptx");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (auto _ : state) {
    BenchMemory memory(size_t{1} << 16);
    benchmark::DoNotOptimize(Module::load(text, {.memory = &memory}));
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}
BENCHMARK(load_module)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rgpu::server::ptx

BENCHMARK_MAIN();
