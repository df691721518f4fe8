// Do two streams of long ops overlap?
//
// Run:      build/dev/bench/server/server_streams_bench --benchmark_min_time=1
// Look for: `over_one_stream`, the time of two streams with half of the ops each over the time of
// one
//           stream with all of them, taken in turns in one run; on two free cores it must stay
//           below 0.7. mm runs in one ATen thread; cumsum is an op that is serial whatever the
//           threads.

#include <benchmark/benchmark.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "server/torch/torch_engine.h"
#include "tests/server/incoming.h"

namespace {

using namespace rgpu;
using namespace rgpu::server;
using namespace rgpu::server::testing;
using Clock = std::chrono::steady_clock;

constexpr int kOps = 16;

class WaitingSink final : public EngineSink {
 public:
  void complete(std::span<OutgoingReply> replies, uint64_t) override {
    const std::lock_guard lock(mutex_);
    replies_ += replies.size();
    changed_.notify_all();
  }
  void failed(Status reason) override {
    std::fprintf(stderr, "session ended: %s\n", reason.message().c_str());
    std::abort();
  }
  void wait_for_reply() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return replies_ != 0; });
    replies_ = 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t replies_ = 0;
};

class Bench {
 public:
  explicit Bench(uint32_t threads)
      : engine_(make_torch_engine({.device = "cpu", .devices = 1, .threads = threads},
                                  {sink_, clock_})) {}
  double seconds(const BatchBuilder::Built& built) {
    const Clock::time_point began = Clock::now();
    engine_->apply(incoming(*engine_, built, ++sequence_));
    sink_.wait_for_reply();
    return std::chrono::duration<double>(Clock::now() - began).count();
  }

 private:
  WaitingSink sink_;
  WorkClock clock_;
  std::unique_ptr<server::Engine> engine_;
  uint64_t sequence_ = 0;
};

// `add_op` appends one op whose result is the handle given.
template <typename AddOp>
void compare(benchmark::State& state, Bench& bench, BatchBuilder& batch, AddOp add_op) {
  batch.stream(1).sync(1);
  bench.seconds(batch.finish());
  const auto ops = [&](int streams) {
    for (int i = 0; i < kOps; ++i) {
      const Handle result = 100 + static_cast<Handle>(i);
      batch.stream(static_cast<uint32_t>(i * streams / kOps));
      add_op(result);
      batch.free(result);
    }
    batch.sync(1);
    return batch.finish();
  };
  const BatchBuilder::Built one = ops(1);
  const BatchBuilder::Built two = ops(2);
  bench.seconds(two);
  double one_s = 0;
  double two_s = 0;
  for (auto _ : state) {
    one_s += bench.seconds(one);
    two_s += bench.seconds(two);
  }
  state.counters["over_one_stream"] = two_s / one_s;
}

void streams_mm(benchmark::State& state) {
  constexpr int64_t kSide = 512;
  Bench bench(1);
  BatchBuilder batch;
  const uint32_t mm =
      batch.define(op("aten::mm", "", {tensor_arg({kSide, kSide}), tensor_arg({kSide, kSide})},
                      {new_output({kSide, kSide})}));
  batch.upload<float>(1, std::vector<float>(kSide * kSide, 1));
  compare(state, bench, batch, [&](Handle result) { batch.record(mm, {1, 1, result}); });
}

void streams_cumsum(benchmark::State& state) {
  constexpr int64_t kSize = 1 << 21;
  Bench bench(2);
  BatchBuilder batch;
  const uint32_t cumsum = batch.define(
      op("aten::cumsum", "", {tensor_arg({kSize}), int_arg(0), none_arg()}, {new_output({kSize})}));
  batch.upload<float>(1, std::vector<float>(kSize, 1));
  compare(state, bench, batch, [&](Handle result) { batch.record(cumsum, {1, result}); });
}

BENCHMARK(streams_mm)->Name("streams/mm_1_thread")->UseRealTime();
BENCHMARK(streams_cumsum)->Name("streams/cumsum_2_threads")->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
