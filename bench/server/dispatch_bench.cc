// What does the server add to an op that libtorch runs anyway?
//
// Run:      build/release/bench/server/server_dispatch_bench --benchmark_min_time=1
// Look for: time_per_op of engine/… against direct/… of the same op. The difference is decoding the
//           record and the free of its result, resolving handles, building the stack, the boxed
//           call and binding the result; it must stay below 2 us. direct_boxed/… tells what the
//           boxed call alone costs. A batch holds 1,000 ops, each with the free of its result.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <benchmark/benchmark.h>

#include "server/torch/torch_engine.h"
#include "tests/server/incoming.h"

namespace {

using namespace rgpu;
using namespace rgpu::server;
using namespace rgpu::server::testing;

constexpr int64_t kOps = 1000;

class NullSink final : public EngineSink {
 public:
  void complete(std::span<OutgoingReply>, uint64_t) override {}
  void failed(Status reason) override {
    std::fprintf(stderr, "session ended: %s\n", reason.message().c_str());
    std::abort();
  }
};

// An engine, and batches for it made from one body.
class Bench {
 public:
  void apply(const BatchBuilder::Built& built) {
    engine_->apply(incoming(*engine_, built, ++sequence_));
  }

 private:
  NullSink sink_;
  WorkClock clock_;
  std::unique_ptr<server::Engine> engine_ =
      make_torch_engine({.device = "cpu", .devices = 1, .threads = 1}, {sink_, clock_});
  uint64_t sequence_ = 0;
};

void count_ops(benchmark::State& state) {
  state.counters["time_per_op"] =
      benchmark::Counter(static_cast<double>(kOps), benchmark::Counter::kIsIterationInvariantRate |
                                                        benchmark::Counter::kInvert);
}

std::vector<float> ones(int64_t side) {
  return std::vector<float>(static_cast<size_t>(side * side), 1);
}

void engine_mm(benchmark::State& state) {
  const int64_t side = state.range(0);
  Bench bench;
  BatchBuilder batch;
  const uint32_t mm =
      batch.define(op("aten::mm", "", {tensor_arg({side, side}), tensor_arg({side, side})},
                      {new_output({side, side})}));
  batch.upload<float>(1, ones(side)).upload<float>(2, ones(side));
  bench.apply(batch.finish());
  for (Handle i = 0; i < kOps; ++i) batch.record(mm, {1, 2, 10 + i}).free(10 + i);
  const BatchBuilder::Built built = batch.finish();
  for (auto _ : state) bench.apply(built);
  count_ops(state);
}

void engine_add(benchmark::State& state) {
  const int64_t side = state.range(0);
  Bench bench;
  BatchBuilder batch;
  const uint32_t add = batch.define(op(
      "aten::add", "Tensor", {tensor_arg({side, side}), tensor_arg({side, side}), scalar_int_arg()},
      {new_output({side, side})}));
  batch.upload<float>(1, ones(side)).upload<float>(2, ones(side));
  bench.apply(batch.finish());
  const Bytes alpha = Bytes().add(int64_t{1});
  for (Handle i = 0; i < kOps; ++i) batch.record(add, {1, 2, 10 + i}, alpha).free(10 + i);
  const BatchBuilder::Built built = batch.finish();
  for (auto _ : state) bench.apply(built);
  count_ops(state);
}

void engine_allocate(benchmark::State& state) {
  Bench bench;
  BatchBuilder batch;
  for (Handle i = 0; i < kOps; ++i) batch.allocate(10 + i, 4096).free(10 + i);
  const BatchBuilder::Built built = batch.finish();
  for (auto _ : state) bench.apply(built);
  count_ops(state);
}

void direct_mm(benchmark::State& state) {
  at::set_num_threads(1);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor a = at::ones({state.range(0), state.range(0)});
  const at::Tensor b = at::ones({state.range(0), state.range(0)});
  for (auto _ : state) {
    for (int64_t i = 0; i < kOps; ++i) benchmark::DoNotOptimize(at::mm(a, b));
  }
  count_ops(state);
}

void direct_add(benchmark::State& state) {
  at::set_num_threads(1);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor a = at::ones({state.range(0), state.range(0)});
  const at::Tensor b = at::ones({state.range(0), state.range(0)});
  for (auto _ : state) {
    for (int64_t i = 0; i < kOps; ++i) benchmark::DoNotOptimize(at::add(a, b));
  }
  count_ops(state);
}

void direct_boxed_mm(benchmark::State& state) {
  at::set_num_threads(1);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor a = at::ones({state.range(0), state.range(0)});
  const at::Tensor b = at::ones({state.range(0), state.range(0)});
  const auto mm = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
  torch::jit::Stack stack;
  for (auto _ : state) {
    for (int64_t i = 0; i < kOps; ++i) {
      stack.emplace_back(a);
      stack.emplace_back(b);
      mm.callBoxed(stack);
      stack.clear();
    }
  }
  count_ops(state);
}

BENCHMARK(direct_mm)->Name("direct/mm")->Arg(32);
BENCHMARK(direct_boxed_mm)->Name("direct_boxed/mm")->Arg(32);
BENCHMARK(engine_mm)->Name("engine/mm")->Arg(32);
BENCHMARK(direct_add)->Name("direct/add")->Arg(64);
BENCHMARK(engine_add)->Name("engine/add")->Arg(64);
BENCHMARK(engine_allocate)->Name("engine/allocate_and_free");

}  // namespace

BENCHMARK_MAIN();
