// Which flush policy serves a program best, over which line?
//
// Recorded streams of programs (docs/flush-policies.md; --recording=FILE takes any) are replayed at
// their own pace through a Session to a real rgpu-opserver, behind an emulated line, under each
// policy. The policies of a cell (stream, round trip, bandwidth) take turns, run by run, so that
// whatever else the machine does hits all alike.
//
// Run:      build/dev/bench/flush_policies/flush_policies_bench [--full] [--runs=9]
//           [--streams=gpt_step] [--rtt-ms=0,100] [--mbit=0,100] [--policies=sync,adaptive]
//           ./dev bench --report draws the charts.
// Look for: the times within a cell: no policy should be much quicker than `adaptive`. waits are
// the
//           program's and the same under all. server_idle_pct: of the time from the first batch's
//           arrival to the server's last word. calling_cpu_us: what issuing cost the program's
//           thread; the program's own work between its ops is not in it.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/flush_policies/rig.h"
#include "records_policy.h"
#include "runtime/flush_policy.h"

namespace rgpu::bench {
namespace {

struct CommandLine {
  std::string server;
  std::string folder = RGPU_RECORDINGS;
  std::vector<std::string> recordings;
  std::vector<std::string> streams = {"mlp_step", "gpt_step", "thousand_ops", "upload_heavy"};
  std::vector<double> rtts_ms = {0, 20, 100};
  std::vector<double> mbits = {100, 0};
  std::vector<std::string> policies = {"per_op", "sync", "bytes=16384", "deadline=200", "adaptive"};
  uint32_t runs = 3;
  bool full = false;
  bool smoke = false;
};

void declare(CLI::App& app, CommandLine& line) {
  app.allow_extras();  // Google Benchmark's.
  app.add_option("--server", line.server,
                 "The rgpu-opserver to measure with; otherwise RGPU_OPSERVER_PROGRAM, otherwise "
                 "this build's");
  app.add_option("--recordings", line.folder, "Folder of the streams' recordings")
      ->capture_default_str();
  app.add_option("--recording", line.recordings,
                 "A recording of your own (RGPU_RECORD=FILE makes one) instead of the streams");
  app.add_option("--streams", line.streams, "Recordings of the folder")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rtt-ms", line.rtts_ms, "Round trips")->delimiter(',')->capture_default_str();
  app.add_option("--mbit", line.mbits, "Megabits a second, each direction; 0: no cap")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--policies", line.policies, "Flush policies; records=N is the documentation's")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--runs", line.runs, "Of each policy in each cell")->capture_default_str();
  app.add_flag("--full", line.full, "Every round trip and bandwidth, 9 runs; some 20 minutes");
  app.add_flag("--smoke", line.smoke, "One cell, one run: does it work?");
}

void apply_presets(CommandLine& line) {
  if (line.full) {
    line.rtts_ms = {0, 1, 20, 100};
    line.mbits = {100, 1000, 0};
    line.runs = 9;
  } else if (line.smoke) {
    line.rtts_ms = {1};
    line.mbits = {1000};
    line.runs = 1;
  }
  for (const std::string& stream :
       line.recordings.empty() ? line.streams : decltype(line.streams){}) {
    line.recordings.push_back(line.folder + "/" + stream + ".rgpurec");
  }
}

double us(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

void report(benchmark::State& state, const Run& run) {
  const auto set = [&](const char* name, double value) { state.counters[name] = value; };
  const auto kilobytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e3; };
  const double busy = us(run.server_busy);
  const double idle = us(run.server_idle);
  set("waits", static_cast<double>(run.waits));
  set("stalls", static_cast<double>(run.stalls));
  set("records", static_cast<double>(run.records));
  set("frames", static_cast<double>(run.frames));
  set("kB_out", kilobytes(run.bytes_out));
  set("kB_in", kilobytes(run.bytes_in));
  set("wakeups", static_cast<double>(run.wakeups));
  set("server_idle_pct", 100 * idle / std::max(busy + idle, 1e-3));
  set("server_busy_ms", busy / 1e3);
  set("calling_cpu_us", us(run.calling_cpu));
  set("calls_us", us(run.calls));
}

void replay(benchmark::State& state, Rig& rig, const Recording& recording, const Line& line,
            const std::string& policy) {
  for (auto _ : state) {
    const Result<Run> run = rig.run(recording, line, policy);
    if (!run) {
      state.SkipWithError(run.error().message().c_str());
      return;
    }
    state.SetIterationTime(us(run->time) / 1e6);
    report(state, *run);
  }
}

std::string cell_name(const Recording& recording, const Line& line) {
  char text[64];
  std::snprintf(text, sizeof text, "/rtt_ms:%g/mbit:%g", line.rtt_ms, line.megabits_per_s);
  return std::filesystem::path(recording.name()).stem().string() + text;
}

// Google Benchmark runs in the order of registration, each once.
void register_cell(Rig& rig, const Recording& recording, const Line& line,
                   const CommandLine& wanted) {
  const std::string cell = cell_name(recording, line);
  const size_t count = wanted.policies.size();
  for (uint32_t run = 0; run < wanted.runs; ++run) {
    for (size_t turn = 0; turn < count; ++turn) {
      const std::string& policy = wanted.policies[(run + turn) % count];
      const std::string name = cell + "/policy:" + policy + "/run:" + std::to_string(run);
      benchmark::RegisterBenchmark(name.c_str(), replay, std::ref(rig), std::cref(recording), line,
                                   policy)
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

int fail(const Status& status) {
  std::fprintf(stderr, "flush_policies_bench: %s\n", status.message().c_str());
  return 1;
}

int measure(CommandLine& line) {
  for (const std::string& policy : line.policies) {
    const Result<std::unique_ptr<FlushPolicy>> known = make_flush_policy(policy);
    if (!known) return fail(known.error());
  }
  std::vector<Recording> recordings;
  for (const std::string& path : line.recordings) {
    Result<Recording> recording = Recording::open(path);
    if (!recording) return fail(recording.error());
    recordings.push_back(*std::move(recording));
  }
  const Result<std::unique_ptr<Rig>> rig = Rig::start(line.server);
  if (!rig) return fail(rig.error());
  for (const Recording& recording : recordings) {
    for (const double rtt_ms : line.rtts_ms) {
      for (const double mbit : line.mbits) register_cell(**rig, recording, {rtt_ms, mbit}, line);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace rgpu::bench

int main(int argc, char** argv) {
  using namespace rgpu::bench;
  unsetenv("RGPU_RECORD");  // A replay is not recorded.
  if (const rgpu::Status registered = register_records_policy(); !registered) {
    return fail(registered);
  }
  CLI::App app("Flush policies on recorded streams.", "flush_policies_bench");
  CommandLine line;
  declare(app, line);
  CLI11_PARSE(app, argc, argv);
  apply_presets(line);
  std::vector<std::string> rest = app.remaining();
  rest.insert(rest.begin(), argv[0]);
  std::vector<char*> words;
  for (std::string& word : rest) words.push_back(word.data());
  int count = static_cast<int>(words.size());
  benchmark::Initialize(&count, words.data());
  if (benchmark::ReportUnrecognizedArguments(count, words.data())) return 1;
  return measure(line);
}
