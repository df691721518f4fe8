// What do a record's ways into the ring, and out of it into a batch, cost?
//
// Run:      build/dev/bench/runtime/runtime_record_ring_bench
// Look for: append within 10 ns or so of memcpy (the same bytes into a buffer, the floor), and
//           drain (ring to BatchEncoder, in session order) under 50 ns for 6 handles.
//           time_per_record is the figure; drain's includes the encoder.
#include <benchmark/benchmark.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/drain.h"
#include "runtime/record_ring.h"

namespace rgpu {
namespace {

constexpr uint32_t kRounds = 1000;  // Records between two drains: what fits a ring in any case.

std::vector<Handle> make_handles(benchmark::State& state) {
  std::vector<Handle> handles(static_cast<size_t>(state.range(0)));
  std::iota(handles.begin(), handles.end(), 100000);
  return handles;
}

void report(benchmark::State& state) {
  state.counters["time_per_record"] = benchmark::Counter(
      kRounds, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void copy(benchmark::State& state) {
  const std::vector<Handle> handles = make_handles(state);
  std::vector<std::byte> target(1 << 20);
  const size_t size = handles.size() * sizeof(Handle) + 24;
  for (auto _ : state) {
    for (uint32_t count = 0; count < kRounds; ++count) {
      std::memcpy(target.data() + count * size, handles.data(), handles.size() * sizeof(Handle));
      benchmark::ClobberMemory();
    }
  }
  report(state);
}

void append(benchmark::State& state) {
  const std::vector<Handle> handles = make_handles(state);
  RecordRing ring(1 << 20);
  uint64_t sequence = 0;
  for (auto _ : state) {
    for (uint32_t count = 0; count < kRounds; ++count) {
      benchmark::DoNotOptimize(ring.try_append({++sequence, 20, 7, handles, {}}));
    }
    state.PauseTiming();
    for (RingRecord record; ring.front(record);) ring.pop();
    ring.release();
    state.ResumeTiming();
  }
  report(state);
}

void drain(benchmark::State& state) {
  const std::vector<Handle> handles = make_handles(state);
  CommandQueue queue(SessionOptions{}, *make_flush_policy("sync"));
  Drain drain(queue, 8 << 20);
  OutgoingBatch batch;
  for (auto _ : state) {
    state.PauseTiming();
    for (uint32_t count = 0; count < kRounds; ++count) {
      benchmark::DoNotOptimize(queue.try_append(0, {20 + count % 100, 7, handles, {}}, nullptr));
    }
    state.ResumeTiming();
    drain.fill(batch, 0);
    benchmark::DoNotOptimize(batch.encoder.finish());
  }
  report(state);
}

BENCHMARK(copy)->Arg(3)->Arg(6)->Arg(60);
BENCHMARK(append)->Arg(3)->Arg(6)->Arg(60);
BENCHMARK(drain)->Arg(3)->Arg(6)->Arg(60);

}  // namespace
}  // namespace rgpu

BENCHMARK_MAIN();
