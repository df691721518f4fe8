// How much of the microsecond an op may cost does its record take on the wire's two sides?
//
// Run:      build/dev/bench/wire/wire_batch_bench
// Look for: time_per_record of Encode and Read in the low tens of nanoseconds, and bytes_per_record
//           under 10 for the training-step mix (two inputs, one output, one free). Copy is the
//           memcpy of as many bytes and so the floor. Open is what verification costs before
//           reading: it must not grow with the number of records.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <vector>

#include "wire/batch.h"

namespace rgpu::wire {
namespace {

// As an elementwise op of a training step: the last result and an older one go in, one new handle
// comes out, and a handle that died goes.
void fill(BatchEncoder& encoder, int64_t ops) {
  const std::array<std::byte, 8> scalar{};
  for (int64_t i = 0; i < ops; ++i) {
    const auto handle = static_cast<Handle>(100000 + i);
    const std::array<Handle, 3> handles = {handle - 1, handle - 40, handle};
    const std::array<Handle, 1> dead = {handle - 60};
    encoder.add_record(kFirstTemplate + static_cast<uint32_t>(i % 200),
                       static_cast<uint32_t>(i % 50), handles, scalar);
    encoder.add_record(static_cast<uint32_t>(Command::kFree), 0, dead, {});
  }
}

// Per record of either kind; an op of this mix is two of them.
void report(benchmark::State& state, int64_t ops, size_t size_bytes) {
  const auto records = static_cast<double>(2 * ops);
  state.counters["time_per_record"] = benchmark::Counter(
      records, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["bytes_per_record"] = static_cast<double>(size_bytes) / records;
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size_bytes));
}

void copy(benchmark::State& state) {
  BatchEncoder encoder;
  fill(encoder, state.range(0));
  const auto body = encoder.finish();
  std::vector<std::byte> target(body.size());
  for (auto _ : state) {
    std::memcpy(target.data(), body.data(), body.size());
    benchmark::ClobberMemory();
  }
  report(state, state.range(0), body.size());
}

void encode(benchmark::State& state) {
  BatchEncoder encoder;
  size_t size_bytes = 0;
  for (auto _ : state) {
    encoder.clear();
    fill(encoder, state.range(0));
    size_bytes = encoder.finish().size();
    benchmark::DoNotOptimize(size_bytes);
  }
  report(state, state.range(0), size_bytes);
}

void open(benchmark::State& state) {
  BatchEncoder encoder;
  fill(encoder, state.range(0));
  const auto body = encoder.finish();
  for (auto _ : state) {
    auto reader = BatchReader::open(body);
    benchmark::DoNotOptimize(reader);
  }
}

void read(benchmark::State& state) {
  BatchEncoder encoder;
  fill(encoder, state.range(0));
  const auto body = encoder.finish();
  std::array<Handle, 3> handles{};
  for (auto _ : state) {
    auto reader = BatchReader::open(body);
    for (uint32_t i = 0; i < reader->record_count(); ++i) {
      const auto record = reader->next();
      const bool is_op = record->number >= kFirstTemplate;
      if (!reader->read_handles(std::span(handles).first(is_op ? 3 : 1)) ||
          !reader->read_immediates(is_op ? 8 : 0)) {
        state.SkipWithError("the batch does not read");
      }
      benchmark::DoNotOptimize(handles);
    }
    if (!reader->finish()) state.SkipWithError("bytes are left over");
  }
  report(state, state.range(0), body.size());
}

BENCHMARK(copy)->Name("Copy")->Arg(1)->Arg(64)->Arg(4096);
BENCHMARK(encode)->Name("Encode")->Arg(1)->Arg(64)->Arg(4096);
BENCHMARK(open)->Name("Open")->Arg(1)->Arg(64)->Arg(4096);
BENCHMARK(read)->Name("Read")->Arg(1)->Arg(64)->Arg(4096);

}  // namespace
}  // namespace rgpu::wire

BENCHMARK_MAIN();
