// What does an op cost the calling thread on device rgpu, beside running it on the local CPU?
//
// Run:      build/dev/bench/torch_backend/torch_backend_issue_bench
// Look for: `over_cpu` below 1: issuing a remote op is cheaper than running a small one here. The
//           server of this bench reads and discards, in a thread of this process; C++ calls ATen
//           directly, so that Python's own cost is in neither figure.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/runtime/scripted_server.h"
#include "torch_backend/aten/registrations.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/hooks.h"
#include "torch_backend/device/storage.h"

namespace rgpu::backend {
namespace {

// A session with a server that discards, for the life of the process.
void connect_once() {
  static auto* server = [] {
    at::set_num_threads(1);
    register_device();
    register_kernels();
    auto* discarding = new testing::ScriptedServer();
    std::thread([discarding] { discarding->discard(); }).detach();
    Client::get().connect("127.0.0.1:" + std::to_string(discarding->port()), 5.0);
    return discarding;
  }();
  benchmark::DoNotOptimize(server);
}

using Op = at::Tensor (*)(const at::Tensor&);

constexpr int kBurst = 500;  // Small enough for the ring, so that no stall is measured.

double seconds_of(Op op, const at::Tensor& x) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kBurst; ++i) benchmark::DoNotOptimize(op(x));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void issue(benchmark::State& state, Op op) {
  connect_once();
  const at::NoGradGuard no_grad;
  const at::Tensor host = at::ones({64, 64});
  const at::Tensor remote = at::empty({64, 64}, at::TensorOptions(c10::Device(kDeviceType, 0)));
  (void)seconds_of(op, remote);
  (void)seconds_of(op, host);
  const uint64_t stalls = Client::get().stats().stalls;
  double remote_s = 0;
  double host_s = 0;
  for (auto _ : state) {
    const double elapsed = seconds_of(op, remote);
    state.SetIterationTime(elapsed);
    remote_s += elapsed;
    host_s += seconds_of(op, host);  // Side by side, so that a noisy machine moves both.
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
  state.counters["over_cpu"] = remote_s / host_s;
  state.counters["stalls"] = static_cast<double>(Client::get().stats().stalls - stalls);
}

BENCHMARK_CAPTURE(issue, add_scalar, [](const at::Tensor& x) {
  return at::add(x, 1);
})->UseManualTime();
BENCHMARK_CAPTURE(issue, mul, [](const at::Tensor& x) { return at::mul(x, x); })->UseManualTime();
BENCHMARK_CAPTURE(issue, sigmoid, [](const at::Tensor& x) {
  return at::sigmoid(x);
})->UseManualTime();
BENCHMARK_CAPTURE(issue, mm, [](const at::Tensor& x) { return at::mm(x, x); })->UseManualTime();
BENCHMARK_CAPTURE(issue, addmm, [](const at::Tensor& x) {
  return at::addmm(x, x, x);
})->UseManualTime();
BENCHMARK_CAPTURE(issue, softmax, [](const at::Tensor& x) {
  return at::softmax(x, -1);
})->UseManualTime();

}  // namespace
}  // namespace rgpu::backend

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  rgpu::backend::Client::get().close();
  return 0;
}
