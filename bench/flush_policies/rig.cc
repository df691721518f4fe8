#include "bench/flush_policies/rig.h"

#include <time.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/process/args.hpp>
#include <boost/process/io.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <utility>

#include "runtime/replay.h"

namespace rgpu::bench {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// So long a session is left alone before its main part, so that its I/O thread parks.
constexpr std::chrono::milliseconds kSettle{3};

nanoseconds thread_cpu() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

std::string find_server(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* named = std::getenv("RGPU_OPSERVER_PROGRAM")) return named;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path() / "../../server/rgpu-opserver";
}

Run difference(const SessionStats& after, const SessionStats& before) {
  Run run;
  run.waits = after.waits - before.waits;
  run.stalls = after.stalls - before.stalls;
  run.frames = after.frames - before.frames;
  run.records = after.records - before.records;
  run.bytes_out = after.bytes_out - before.bytes_out;
  run.bytes_in = after.bytes_in - before.bytes_in;
  run.wakeups = after.wakeups - before.wakeups;
  run.server_busy = nanoseconds(after.server_busy_ns - before.server_busy_ns);
  return run;
}

Status sync(Session& session, WaitObserver& observer) {
  const Result<wire::Reply> reply = session.sync(observer);
  if (!reply) return reply.error();
  if (!reply->failed) return {};
  return Status(Code::kDevice, reply->error.op + " failed: " + reply->error.message);
}

}  // namespace

Result<std::unique_ptr<Rig>> Rig::start(const std::string& server) {
  std::unique_ptr<Rig> rig(new Rig);
  RGPU_RETURN_IF_ERROR(rig->start_server(find_server(server)));
  RGPU_RETURN_IF_ERROR(rig->start_relay());
  return rig;
}

Status Rig::start_server(const std::string& program) {
  namespace bp = boost::process;
  if (!std::filesystem::exists(program)) {
    return Status(Code::kInvalidArgument, "there is no server at " + program +
                                              ": give --server=PROGRAM, or build with PyTorch");
  }
  bp::ipstream output;
  std::error_code error;
  server_ = bp::child(program,
                      bp::args({"--port", "0", "--device", "cpu", "--threads", "1", "--log-level",
                                "warning", "--exit-with-parent"}),
                      bp::std_out > output, error);
  std::string line;
  std::getline(output, line);  // "… listening on 127.0.0.1:PORT (…"; ends if the server does.
  const size_t colon = line.find(':');
  if (error || colon == std::string::npos) {
    return Status(Code::kInternal,
                  program + " did not start" + (error ? ": " + error.message() : ""));
  }
  server_port_ = static_cast<uint16_t>(std::atoi(line.c_str() + colon + 1));
  return {};
}

Status Rig::start_relay() {
  RelayOptions options;
  options.target.port = server_port_;
  relay_ = std::make_shared<Relay>(io_, options);
  RGPU_RETURN_IF_ERROR(relay_->open());
  relay_thread_ = std::thread([this] { io_.run(); });
  return {};
}

Rig::~Rig() {
  if (relay_thread_.joinable()) {
    boost::asio::post(io_, [this] {
      relay_->stop();
      work_.reset();
    });
    relay_thread_.join();
  }
  std::error_code ignored;
  server_.terminate(ignored);
}

RelayFigures Rig::set_line(const Line& line) {
  const auto figures = std::make_shared<std::promise<RelayFigures>>();
  boost::asio::post(io_, [this, figures, line] {
    const RelayFigures before = relay_->figures();
    relay_->set_line(nanoseconds(static_cast<int64_t>(line.rtt_ms * 1e6)), line.megabits_per_s);
    figures->set_value(before);
  });
  return figures->get_future().get();
}

Result<Run> Rig::run(const Recording& recording, const Line& line, const std::string& policy) {
  SessionOptions options;
  options.port = relay_->port();
  options.torch_version = recording.facts().torch_version;
  options.client_version = "flush_policies_bench";
  Result<std::shared_ptr<Session>> connected = Session::connect(options);
  if (!connected) return connected.error();
  Session& session = **connected;
  WaitObserver observer;
  Replay replay(session, recording);
  RGPU_RETURN_IF_ERROR(replay.play(recording.facts().main_part, Replay::Pace::kAtOnce, observer));
  RGPU_RETURN_IF_ERROR(sync(session, observer));
  RGPU_RETURN_IF_ERROR(session.set_flush_policy(policy));
  std::this_thread::sleep_for(kSettle);
  (void)set_line(line);

  const SessionStats before = session.stats();
  const Replay::Figures figures_before = replay.figures();
  const nanoseconds cpu_before = thread_cpu();
  const Clock::time_point began = Clock::now();
  RGPU_RETURN_IF_ERROR(replay.play(UINT64_MAX, Replay::Pace::kRecorded, observer));
  if (!recording.facts().ends_waiting) RGPU_RETURN_IF_ERROR(sync(session, observer));
  const Clock::time_point ended = Clock::now();
  const nanoseconds cpu = thread_cpu() - cpu_before;

  Run run = difference(session.stats(), before);
  const RelayFigures relayed = set_line({});
  run.time = ended - began;
  run.calls = replay.figures().calls - figures_before.calls;
  run.calling_cpu = cpu - (replay.figures().gap_cpu - figures_before.gap_cpu);
  const nanoseconds watched = relayed.last_received_down - relayed.first_delivered_up;
  run.server_idle = std::max(watched - run.server_busy, nanoseconds(0));
  session.close();
  return run;
}

}  // namespace rgpu::bench
