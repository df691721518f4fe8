// Trace: where a program's time goes, on this side and on the server, from start() to stop().
//
// Threading: start() and stop() by one thread at a time; what is traced, by any thread. Tracing
//            costs a lock and two clock readings an op while it is on, one relaxed load otherwise.
// Errors:    kEventsMax bounds each kind of event; later ones are counted as lost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/session.h"
#include "runtime/tracer.h"
#include "wire/trace.h"

namespace rgpu::backend {

// As all times of a trace are counted.
[[nodiscard]] int64_t ns_of(SentBatch::Clock::time_point at) noexcept;

// A stretch of a calling thread's time.
struct TracedCall {
  const char* name = "";  // The op's, or what is done; lives as long as the process.
  uint32_t location = 0;  // Program line.
  uint32_t thread = 0;    // From 1, in the order of their first traced call.
  uint32_t stream = 0;
  bool is_wait = false;
  uint64_t record = 0;  // The last record of the session when it ended.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct TracedBatch {
  SentBatch sent;
  int64_t applied_ns = 0;  // 0: not yet.
};

struct TraceData {
  std::vector<TracedCall> calls;
  std::vector<TracedBatch> batches;
  std::vector<wire::TraceEvent> server;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t server_offset_ns = 0;     // The server's clock minus this side's,
  int64_t server_uncertain_ns = 0;  // give or take so much.
  uint64_t lost = 0;
};

class Trace {
 public:
  static constexpr size_t kEventsMax = 1u << 20;

  [[nodiscard]] static Trace& get() noexcept;
  [[nodiscard]] static bool on() noexcept { return on_.load(std::memory_order_relaxed); }
  [[nodiscard]] static int64_t now_ns() noexcept;

  // Connects if need be; waits a few round trips. Throws when a trace is under way.
  void start();
  // Synchronizes, and ends the trace.
  [[nodiscard]] TraceData stop();
  void add(const TracedCall& call);

 private:
  class Batches;

  static std::atomic<bool> on_;
  std::mutex mutex_;  // Guards what follows.
  TraceData data_;
  std::shared_ptr<Batches> batches_;
};

// Traces its own lifetime.
class CallTracer {
 public:
  explicit CallTracer(const char* name, bool is_wait = false) noexcept
      : name_(name), is_wait_(is_wait) {
    if (Trace::on()) [[unlikely]]
      begin_ns_ = Trace::now_ns();
  }
  ~CallTracer() {
    if (begin_ns_ != 0) [[unlikely]]
      end();
  }
  CallTracer(const CallTracer&) = delete;
  CallTracer& operator=(const CallTracer&) = delete;

 private:
  void end() const noexcept;
  const char* const name_;
  int64_t begin_ns_ = 0;
  const bool is_wait_;
};

}  // namespace rgpu::backend
