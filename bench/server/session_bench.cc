// What carries a session better, io_uring or epoll?
//
// Run:      build/dev/bench/server/server_session_bench
// Look for: `time` and `cpu`, what io_uring takes of epoll's wall-clock time and of the worker's
//           CPU time: below 1 io_uring wins. Each iteration runs both, one after the other, over
//           loopback on workers of their own; the figures are medians. The client is blocking and
//           the same for both; the engine stores and hands out bytes and runs no ops.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/server/raw_client.h"
#include "tests/server/worker_process.h"

namespace rgpu::server::testing {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) std::abort();
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// A session over one of the two, and what it took.
struct Side {
  explicit Side(Io io) : worker({.io = {io, false, "the bench"}}), client(worker.port()) {
    if (client.greet().code != Code::kOk) throw std::runtime_error("no session");
  }
  WorkerProcess worker;
  RawClient client;
  std::vector<double> seconds;
  std::vector<double> cpu;
};

// Work with a session; returns when the worker has done all of it.
using Work = std::function<void(RawClient&)>;

void measure(Side& side, const Work& work) {
  const double cpu_before = cpu_seconds(side.worker.pid());
  const Clock::time_point began = Clock::now();
  work(side.client);
  side.seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  side.cpu.push_back(cpu_seconds(side.worker.pid()) - cpu_before);
}

void compare(benchmark::State& state, const Work& prepare, const Work& work, int64_t units) {
  const Status status = probe_io_uring();
  if (!status.ok()) {
    state.SkipWithError(status.message().c_str());
    return;
  }
  Side epoll(Io::kEpoll);
  Side io_uring(Io::kIoUring);
  for (Side* side : {&epoll, &io_uring}) {
    prepare(side->client);
    work(side->client);  // Pages are touched and pools filled.
  }
  for (auto _ : state) {
    measure(epoll, work);
    measure(io_uring, work);
    state.SetIterationTime(io_uring.seconds.back());
  }
  const double per_unit = 1e6 / static_cast<double>(units);
  state.counters["epoll_us"] = median(epoll.seconds) * per_unit;
  state.counters["io_uring_us"] = median(io_uring.seconds) * per_unit;
  state.counters["time"] = median(io_uring.seconds) / median(epoll.seconds);
  state.counters["cpu"] = median(io_uring.cpu) / median(epoll.cpu);
}

void nothing(RawClient&) {}

void sync(RawClient& client) {
  BatchBuilder batch;
  batch.sync(1);
  client.send_batch(batch.finish());
  (void)client.receive_reply();
}

// One frame each way, and both sides idle in between.
void round_trip(benchmark::State& state) {
  constexpr int64_t kSyncs = 200;
  const Work work = [](RawClient& client) {
    for (int64_t i = 0; i < kSyncs; ++i) sync(client);
  };
  compare(state, nothing, work, kSyncs);
}

// Batches of `range` bytes, as fast as they go.
void batches(benchmark::State& state) {
  constexpr int64_t kBatches = 2000;
  BatchBuilder batch;
  for (Handle handle = 1; handle * 11 < static_cast<uint64_t>(state.range(0)); ++handle) {
    batch.allocate(handle, 8);
  }
  const BatchBuilder::Built built = batch.finish();
  const Work work = [&built](RawClient& client) {
    for (int64_t i = 0; i < kBatches; ++i) client.send_batch(built);
    sync(client);
  };
  compare(state, nothing, work, kBatches);
  state.counters["body_bytes"] = static_cast<double>(built.body.size());
}

// One upload of `range` bytes a batch.
void uploads(benchmark::State& state) {
  const int64_t count = std::clamp<int64_t>((int64_t{64} << 20) / state.range(0), 1, 1000);
  BatchBuilder batch;
  batch.upload_bytes(1, std::vector<std::byte>(static_cast<size_t>(state.range(0))));
  const BatchBuilder::Built built = batch.finish();
  const Work work = [&built, count](RawClient& client) {
    for (int64_t i = 0; i < count; ++i) client.send_batch(built);
    sync(client);
  };
  compare(state, nothing, work, count);
}

// One fetch of `range` bytes, all in one batch.
void downloads(benchmark::State& state) {
  const auto size_bytes = static_cast<size_t>(state.range(0));
  const int64_t count = std::clamp<int64_t>((int64_t{64} << 20) / state.range(0), 1, 1000);
  const Work prepare = [size_bytes](RawClient& client) {
    BatchBuilder batch;
    batch.upload_bytes(1, std::vector<std::byte>(size_bytes));
    client.send_batch(batch.finish());
  };
  std::vector<std::byte> payload;
  const Work work = [&payload, size_bytes, count](RawClient& client) {
    BatchBuilder batch;
    for (int64_t i = 0; i < count; ++i) batch.fetch(1, 1, size_bytes);
    client.send_batch(batch.finish());
    for (int64_t i = 0; i < count; ++i) (void)client.receive_reply(&payload);
  };
  compare(state, prepare, work, count);
}

BENCHMARK(round_trip)->UseManualTime();
BENCHMARK(batches)->UseManualTime()->Arg(256)->Arg(4 << 10)->Arg(64 << 10);
BENCHMARK(uploads)->UseManualTime()->Arg(4)->Arg(4 << 10)->Arg(64 << 10)->Arg(64 << 20);
BENCHMARK(downloads)->UseManualTime()->Arg(4)->Arg(4 << 10)->Arg(64 << 10)->Arg(64 << 20);

}  // namespace
}  // namespace rgpu::server::testing

BENCHMARK_MAIN();
