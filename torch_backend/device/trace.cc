#include "torch_backend/device/trace.h"

#include <c10/util/Exception.h>

#include <array>
#include <span>
#include <utility>

#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
namespace {

// A command that replies with one integer.
int64_t ask_number(wire::Command command, std::span<const wire::Handle> handles) {
  Client& client = Client::get();
  const Result<uint64_t> request = client.session().new_request();
  if (!request) raise_if_error(request.error());
  client.ask(command, 0, handles, *request);
  return integer_of(client.wait(*request));
}

std::vector<wire::TraceEvent> fetch_events(wire::Handle handle, uint64_t size_bytes) {
  TORCH_CHECK(size_bytes % sizeof(wire::TraceEvent) == 0 &&
                  size_bytes / sizeof(wire::TraceEvent) <= wire::kTraceEventsMax,
              "rgpu: the server sent a malformed trace of ", size_bytes, " bytes");
  auto events =
      std::make_shared<std::vector<wire::TraceEvent>>(size_bytes / sizeof(wire::TraceEvent));
  if (events->empty()) return {};
  Client& client = Client::get();
  const Result<uint64_t> request =
      client.session().new_request({std::as_writable_bytes(std::span(*events)), events});
  if (!request) raise_if_error(request.error());
  const std::array<uint64_t, 3> immediates = {*request, 0, size_bytes};
  client.append(wire::Command::kFetch, 0, {&handle, 1}, std::as_bytes(std::span(immediates)));
  (void)client.wait(*request);
  return std::move(*events);
}

}  // namespace

// What the I/O thread does. It may still be told of a batch when the trace has ended.
class Trace::Batches final : public Tracer {
 public:
  void sent(const SentBatch& batch) noexcept override {
    const std::lock_guard lock(mutex_);
    if (batches_.size() < kEventsMax) batches_.push_back({batch, 0});
  }
  void applied(uint64_t sequence, SentBatch::Clock::time_point at) noexcept override {
    const std::lock_guard lock(mutex_);
    for (; applied_ < batches_.size() && batches_[applied_].sent.sequence <= sequence; ++applied_) {
      batches_[applied_].applied_ns = ns_of(at);
    }
  }
  std::vector<TracedBatch> take() {
    const std::lock_guard lock(mutex_);
    applied_ = 0;
    return std::exchange(batches_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<TracedBatch> batches_;
  size_t applied_ = 0;
};

std::atomic<bool> Trace::on_{false};

Trace& Trace::get() noexcept {
  static auto* trace = new Trace();  // Leaked: ops may run while statics are destroyed.
  return *trace;
}

int64_t ns_of(SentBatch::Clock::time_point at) noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

int64_t Trace::now_ns() noexcept { return ns_of(SentBatch::Clock::now()); }

void Trace::start() {
  TORCH_CHECK(!on(), "rgpu: a profile is under way; only one can be at a time");
  Client::get().synchronize();
  // The server read its clock somewhere between the two moments: the shortest of a few tries tells
  // it best.
  TraceData data;
  data.server_uncertain_ns = INT64_MAX;
  for (int i = 0; i < 3; ++i) {
    const int64_t before = now_ns();
    const int64_t server = ask_number(wire::Command::kStartTrace, {});
    const int64_t after = now_ns();
    if ((after - before) / 2 >= data.server_uncertain_ns) continue;
    data.server_uncertain_ns = (after - before) / 2;
    data.server_offset_ns = server - (before + data.server_uncertain_ns);
  }
  const std::lock_guard lock(mutex_);
  batches_ = std::make_shared<Batches>();
  Client::get().session().set_tracer(batches_);
  data.begin_ns = now_ns();
  data_ = std::move(data);
  on_ = true;
}

TraceData Trace::stop() {
  TORCH_CHECK(on(), "rgpu: no profile is under way");
  on_ = false;
  const int64_t end_ns = now_ns();
  Session& session = Client::get().session();
  TraceData data;
  std::shared_ptr<Batches> batches;
  {
    const std::lock_guard lock(mutex_);
    data = std::exchange(data_, {});
    batches = std::exchange(batches_, nullptr);
  }
  data.end_ns = end_ns;
  Client::get().synchronize();
  session.set_tracer(nullptr);
  data.batches = batches->take();
  const wire::Handle handle = session.new_handles(1);
  const int64_t size_bytes = ask_number(wire::Command::kStopTrace, {&handle, 1});
  data.server = fetch_events(handle, static_cast<uint64_t>(size_bytes));
  session.free(handle);
  return data;
}

void Trace::add(const TracedCall& call) {
  const std::lock_guard lock(mutex_);
  if (data_.calls.size() < kEventsMax) {
    data_.calls.push_back(call);
  } else {
    ++data_.lost;
  }
}

void CallTracer::end() const noexcept {
  static std::atomic<uint32_t> next{1};
  static thread_local const uint32_t thread = next.fetch_add(1, std::memory_order_relaxed);
  const int64_t end_ns = Trace::now_ns();
  if (!Trace::on()) return;
  TracedCall call;
  call.name = name_;
  call.location = Client::hooks().location();
  call.thread = thread;
  call.stream = current_stream(current_device());
  call.is_wait = is_wait_;
  call.record = Client::get().stats().records;
  call.begin_ns = begin_ns_;
  call.end_ns = end_ns;
  Trace::get().add(call);
}

}  // namespace rgpu::backend
