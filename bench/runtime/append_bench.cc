// What does issuing one record cost the calling thread, all in all, under each flush policy?
//
// Run:      build/dev/bench/runtime/runtime_append_bench
// Look for: about 100 ns a record of 6 handles with `adaptive`, and wakeups_per_record near 0: a
// burst
//           costs one system call. `per_op` shows what is saved. The server here reads and
//           discards, acknowledging each read; it and the I/O thread need CPUs of their own, so on
//           few CPUs a burst (the first figure) says more than the steady state (the second), where
//           the ring is full and the slowest of the three threads sets the pace.
//           memcpy is the floor: the record's bytes into a buffer.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/session.h"
#include "tests/runtime/scripted_server.h"
#include "wire/limits.h"

namespace rgpu {
namespace {

using testing::ScriptedServer;

// A Session and a thread that discards what it sends.
class Rig {
 public:
  explicit Rig(const char* policy) : thread_([this] { server_.discard(); }) {
    SessionOptions options;
    options.port = server_.port();
    options.flush_policy = policy;
    options.ring_size_bytes = 4u << 20;
    session_ = *Session::connect(options);
    if (!session_->server_info(observer_)) std::abort();
  }
  ~Rig() {
    session_.reset();
    thread_.join();
  }
  Session& session() { return *session_; }
  WaitObserver& observer() { return observer_; }

 private:
  ScriptedServer server_;
  std::thread thread_;
  WaitObserver observer_;
  std::shared_ptr<Session> session_;
};

void report(benchmark::State& state, const SessionStats& before, const SessionStats& after) {
  const auto records = static_cast<double>(after.records - before.records);
  state.counters["wakeups_per_record"] =
      static_cast<double>(after.wakeups - before.wakeups) / records;
  state.counters["records_per_frame"] = records / static_cast<double>(after.frames - before.frames);
  state.counters["stalls"] = static_cast<double>(after.stalls - before.stalls);
}

void copy(benchmark::State& state) {
  std::vector<Handle> handles(6);
  std::vector<std::byte> target(1 << 20);
  size_t at = 0;
  for (auto _ : state) {
    std::memcpy(target.data() + at, handles.data(), handles.size() * sizeof(Handle));
    at = (at + 72) % (target.size() - 72);
    benchmark::ClobberMemory();
  }
}

// As a program does it: a training step's worth of records, then something else.
void burst(benchmark::State& state, const char* policy) {
  constexpr int kBurst = 1000;
  Rig rig(policy);
  std::vector<Handle> handles(6);
  std::iota(handles.begin(), handles.end(), 100000);
  const SessionStats before = rig.session().stats();
  for (auto _ : state) {
    for (int count = 0; count < kBurst; ++count) {
      const auto op = static_cast<uint32_t>(20 + count % 100);
      if (!rig.session().append(0, {op, 7, handles, {}}, rig.observer())) std::abort();
    }
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // The others catch up.
    state.ResumeTiming();
  }
  state.counters["time_per_record"] = benchmark::Counter(
      kBurst, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  report(state, before, rig.session().stats());
}

void steady(benchmark::State& state, const char* policy) {
  Rig rig(policy);
  std::vector<Handle> handles(6);
  std::iota(handles.begin(), handles.end(), 100000);
  const SessionStats before = rig.session().stats();
  for (auto _ : state) {
    if (!rig.session().append(0, {20, 7, handles, {}}, rig.observer())) std::abort();
  }
  report(state, before, rig.session().stats());
}

BENCHMARK(copy);
BENCHMARK_CAPTURE(burst, adaptive, "adaptive");
BENCHMARK_CAPTURE(burst, sync, "sync");
BENCHMARK_CAPTURE(burst, bytes, "bytes=65536");
BENCHMARK_CAPTURE(burst, deadline, "deadline=1000");
BENCHMARK_CAPTURE(burst, per_op, "per_op");
BENCHMARK_CAPTURE(steady, adaptive, "adaptive")->UseRealTime();

}  // namespace
}  // namespace rgpu

BENCHMARK_MAIN();
