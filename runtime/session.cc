#include "runtime/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/connection.h"
#include "runtime/recorder.h"
#include "runtime/session_core.h"
#include "runtime/upload_feed.h"
#include "runtime/wait.h"
#include "wire/limits.h"

namespace rgpu {

namespace {

using wire::Command;

// An upload larger than this goes as several records, so that other records get between.
constexpr uint64_t kUploadSizeBytesMax = uint64_t{64} << 20;

constexpr uint32_t number(Command command) { return static_cast<uint32_t>(command); }

Status check_options(const SessionOptions& options) {
  if (!std::has_single_bit(options.ring_size_bytes) || options.ring_size_bytes < 128) {
    return Status(Code::kInvalidArgument, "ring_size_bytes is " +
                                              std::to_string(options.ring_size_bytes) +
                                              ": use a power of two, 128 at least");
  }
  return {};
}

}  // namespace

struct Session::State {
  using Clock = std::chrono::steady_clock;

  Status issue(uint32_t stream, const Record& record, Payload* payload, WaitObserver& observer);
  Status issue_slowly(uint32_t stream, const Record& record, Payload* payload,
                      WaitObserver& observer);
  Result<wire::Reply> sync(Session& session, Command command, uint32_t stream,
                           WaitObserver& observer);
  // Counted. Repeats `attempt` until it returns true, the session is lost or the observer gives up.
  template <typename Attempt>
  Status wait_for_room(WaitObserver& observer, Attempt attempt);
  // Changes while the I/O thread gets anywhere.
  uint64_t progress() const {
    return core->queue.room_epoch() + core->counters.bytes_out.load(std::memory_order_relaxed);
  }
  // Gives `payload`, whose bytes are the caller's, an owner (a copy) or a feed.
  static Status stage(Payload& payload);
  // Returns when the feed no longer needs the caller's bytes.
  Status hand_over(UploadFeed& feed, WaitObserver& observer);
  void request_flush() {
    if (core->queue.request_flush()) connection->wake();
  }

  std::shared_ptr<SessionCore> core;
  std::shared_ptr<Connection> connection;
  std::unique_ptr<Recorder> recorder;  // nullptr: not recorded.
  std::atomic<Handle> next_handle{1};
  std::atomic<bool> forked{false};
};

Session::Session(std::shared_ptr<State> state) : state_(std::move(state)) {}

Session::~Session() {
  if (state_->forked.load(std::memory_order_relaxed)) {
    // The thread is not here, and its descriptors are the parent's: nothing may be destroyed.
    new std::shared_ptr<State>(std::move(state_));
    return;
  }
  close();
}

Result<std::shared_ptr<Session>> Session::connect(const SessionOptions& options) {
  RGPU_RETURN_IF_ERROR(check_options(options));
  std::shared_ptr<FlushPolicy> policy = options.policy;
  if (policy == nullptr) {
    Result<std::unique_ptr<FlushPolicy>> named = make_flush_policy(options.flush_policy);
    if (!named) return named.error();
    policy = *std::move(named);
  }
  auto io = std::make_unique<boost::asio::io_context>(1);
  auto core = std::make_shared<SessionCore>(options, std::move(policy));
  Result<boost::asio::ip::tcp::socket> socket =
      options.socket < 0 ? connect_tcp(*io, core->peer, options.connect_timeout)
                         : adopt_socket(*io, options.socket);
  if (!socket) return socket.error();
  auto state = std::make_shared<State>();
  state->core = core;
  state->connection = std::make_shared<Connection>(core, std::move(io), *std::move(socket));
  state->recorder = Recorder::open(options);
  state->connection->start();
  return std::shared_ptr<Session>(new Session(std::move(state)));
}

Result<wire::HelloReply> Session::server_info(WaitObserver& observer) {
  if (!alive()) return status();
  Handshake& handshake = state_->core->handshake;
  const RecordedCall call(state_->recorder.get());
  const auto note = [](Recorder& recorder, auto began) { recorder.greeting(began); };
  std::optional<CountedWait> counted;
  {
    const std::lock_guard lock(handshake.mutex);
    if (handshake.reply) {
      call.succeeded(note);
      return *handshake.reply;
    }
  }
  counted.emplace(state_->core->counters, observer);
  std::unique_lock lock(handshake.mutex);
  const auto over = [&] { return handshake.reply.has_value() || !alive(); };
  if (!stand_still(lock, handshake.changed, observer, over)) {
    return Status(Code::kCancelled, "the wait for the server's handshake was interrupted");
  }
  call.succeeded(note);
  if (handshake.reply) return *handshake.reply;
  lock.unlock();
  return status();
}

Handle Session::new_handles(uint32_t count) noexcept {
  return state_->next_handle.fetch_add(count, std::memory_order_relaxed);
}

Status Session::State::issue(uint32_t stream, const Record& record, Payload* payload,
                             WaitObserver& observer) {
  if (!core->fate.alive()) return core->fate.status();
  switch (core->queue.try_append(stream, record, payload)) {
    case CommandQueue::Outcome::kAppended:
      return {};
    case CommandQueue::Outcome::kAppendedWake:
      connection->wake();
      return {};
    case CommandQueue::Outcome::kRefused:
      return core->queue.check(stream, record);
    case CommandQueue::Outcome::kFull:
      break;
  }
  return issue_slowly(stream, record, payload, observer);
}

Status Session::State::issue_slowly(uint32_t stream, const Record& record, Payload* payload,
                                    WaitObserver& observer) {
  return wait_for_room(observer, [&] {
    const CommandQueue::Outcome outcome = core->queue.try_append(stream, record, payload);
    if (outcome == CommandQueue::Outcome::kAppendedWake) connection->wake();
    return outcome != CommandQueue::Outcome::kFull;
  });
}

template <typename Attempt>
Status Session::State::wait_for_room(WaitObserver& observer, Attempt attempt) {
  core->counters.stalls.fetch_add(1, std::memory_order_relaxed);
  const CountedWait counted(core->counters, observer);
  uint64_t progress_seen = progress();
  Clock::time_point progress_time = Clock::now();
  Clock::time_point asked_time = progress_time;
  while (true) {
    const uint64_t epoch = core->queue.room_epoch();
    if (attempt()) return {};
    if (!core->fate.alive()) return core->fate.status();
    request_flush();
    core->queue.wait_for_room(epoch, kWaitSlice);
    const Clock::time_point now = Clock::now();
    if (now - asked_time >= kWaitSlice) {
      asked_time = now;
      if (!observer.keep_waiting()) {
        return Status(Code::kCancelled, "the wait for room in the ring was interrupted");
      }
    }
    if (const uint64_t progress_now = progress(); progress_now != progress_seen) {
      progress_seen = progress_now;
      progress_time = now;
    } else if (now - progress_time >= core->options.stall_timeout) {
      connection->lose(Status(Code::kDisconnected,
                              "the rgpu server at " + core->peer.name() + " took nothing for " +
                                  to_text(core->options.stall_timeout) +
                                  " while a ring was full; the session and its tensors are lost"));
    }
  }
}

Status Session::State::stage(Payload& payload) {
  const size_t size_bytes = payload.bytes.size();
  if (payload.owner || size_bytes == 0) return {};
  if (size_bytes >= UploadFeed::kSizeBytesMin) {
    payload.feed = std::make_shared<UploadFeed>(payload.bytes);
    return {};
  }
  std::shared_ptr<void> copy(std::malloc(size_bytes), &std::free);
  if (!copy) {
    return Status(Code::kExhausted,
                  "no host memory for an upload of " + std::to_string(size_bytes) + " bytes");
  }
  std::memcpy(copy.get(), payload.bytes.data(), size_bytes);
  payload.bytes = {static_cast<const std::byte*>(copy.get()), size_bytes};
  payload.owner = std::move(copy);
  return {};
}

Status Session::State::hand_over(UploadFeed& feed, WaitObserver& observer) {
  const auto alive = [this] { return core->fate.alive(); };
  if (feed.hand_over(alive)) return {};
  // The session was lost, or there is no memory for a copy: then all of it must be sent first.
  Status sent = wait_for_room(observer, [&] { return feed.is_handed_over(); });
  if (sent.ok()) return {};
  feed.abandon();
  // Its frame may have begun, and can no longer be completed.
  connection->lose(Status(Code::kDisconnected, "an upload was given up: " + sent.message()));
  return sent;
}

Status Session::append(uint32_t stream, const Record& record, WaitObserver& observer) {
  const RecordedCall call(state_->recorder.get());
  Status issued = state_->issue(stream, record, nullptr, observer);
  if (issued) {
    call.succeeded([&](Recorder& recorder, auto began) { recorder.record(began, stream, record); });
  }
  return issued;
}

Result<uint32_t> Session::define_template(std::span<const std::byte> encoded_op_template) {
  if (!alive()) return status();
  const auto define = [&] { return state_->core->queue.define_template(encoded_op_template); };
  if (state_->recorder == nullptr) [[likely]]
    return define();
  return state_->recorder->define_template(Recorder::Clock::now(), encoded_op_template, define);
}

Status Session::forget_templates(WaitObserver& observer) {
  return append(0, {number(Command::kForgetTemplates), 0, {}, {}}, observer);
}

Status Session::upload(uint32_t stream, Handle handle, uint64_t storage_size_bytes,
                       uint64_t offset_bytes, Payload payload, WaitObserver& observer) {
  if (!alive()) return status();
  const RecordedCall call(state_->recorder.get());
  const std::span<const std::byte> bytes = payload.bytes;
  const uint64_t first_offset_bytes = offset_bytes;
  CommandQueue& queue = state_->core->queue;
  uint64_t unissued = payload.bytes.size();
  if (!queue.try_stage(unissued)) {
    RGPU_RETURN_IF_ERROR(
        state_->wait_for_room(observer, [&] { return queue.try_stage(unissued); }));
  }
  do {
    const uint64_t size = std::min(unissued, kUploadSizeBytesMax);
    const std::array<uint64_t, 3> immediates{storage_size_bytes, offset_bytes, size};
    Payload segment{payload.bytes.first(size), payload.owner};
    const Record record{number(Command::kUpload), 0, std::span(&handle, 1),
                        std::as_bytes(std::span(immediates))};
    Status issued = State::stage(segment);
    const std::shared_ptr<UploadFeed> feed = segment.feed;
    if (issued.ok()) issued = state_->issue(stream, record, &segment, observer);
    if (!issued) {
      queue.unstage(unissued);
      return issued;
    }
    if (feed) RGPU_RETURN_IF_ERROR(state_->hand_over(*feed, observer));
    payload.bytes = payload.bytes.subspan(size);
    offset_bytes += size;
    unissued -= size;
  } while (unissued != 0);
  call.succeeded([&](Recorder& recorder, auto began) {
    recorder.upload(began, stream, handle, storage_size_bytes, first_offset_bytes, bytes);
  });
  return {};
}

void Session::free(Handle handle) noexcept {
  if (!alive()) return;
  const RecordedCall call(state_->recorder.get());
  if (state_->core->queue.free(handle)) state_->connection->wake();
  call.succeeded([&](Recorder& recorder, auto began) { recorder.free(began, handle); });
}

Result<uint64_t> Session::new_request(Destination destination) {
  if (!alive()) return status();
  const RecordedCall call(state_->recorder.get());
  const uint64_t size_bytes = destination.bytes.size();
  Result<uint64_t> request = state_->core->replies.open(std::move(destination));
  if (request) {
    call.succeeded(
        [&](Recorder& recorder, auto began) { recorder.request(began, *request, size_bytes); });
  }
  return request;
}

void Session::abandon_request(uint64_t request) noexcept {
  if (state_->forked.load(std::memory_order_relaxed)) return;
  const RecordedCall call(state_->recorder.get());
  state_->core->replies.abandon(request);
  call.succeeded([&](Recorder& recorder, auto began) { recorder.abandon(began, request); });
}

void Session::disown_request(uint64_t request) noexcept {
  if (!state_->forked.load(std::memory_order_relaxed)) state_->core->replies.disown(request);
}

Result<wire::Reply> Session::wait(uint64_t request, WaitObserver& observer) {
  if (state_->forked.load(std::memory_order_relaxed)) return status();
  const RecordedCall call(state_->recorder.get());
  state_->request_flush();
  Result<wire::Reply> reply = state_->core->replies.wait(request, observer);
  call.succeeded([&](Recorder& recorder, auto began) { recorder.wait(began, request, reply); });
  return reply;
}

std::optional<Result<wire::Reply>> Session::poll(uint64_t request) {
  if (state_->forked.load(std::memory_order_relaxed)) return status();
  const RecordedCall call(state_->recorder.get());
  std::optional<Result<wire::Reply>> reply = state_->core->replies.poll(request);
  call.succeeded([&](Recorder& recorder, auto began) { recorder.poll(began, request, reply); });
  return reply;
}

void Session::flush() noexcept {
  if (!alive()) return;
  const RecordedCall call(state_->recorder.get());
  state_->request_flush();
  call.succeeded([](Recorder& recorder, auto began) { recorder.flush(began); });
}

uint64_t Session::appended(uint32_t stream) const noexcept {
  const RecordRing* ring =
      stream < limits::kStreamsMax ? state_->core->queue.ring(stream) : nullptr;
  return ring == nullptr ? 0 : ring->appended();
}

Result<wire::Reply> Session::sync(WaitObserver& observer) {
  return state_->sync(*this, Command::kSync, 0, observer);
}

Result<wire::Reply> Session::sync_stream(uint32_t stream, WaitObserver& observer) {
  return state_->sync(*this, Command::kSyncStream, stream, observer);
}

Result<wire::Reply> Session::State::sync(Session& session, Command command, uint32_t stream,
                                         WaitObserver& observer) {
  Result<uint64_t> request = session.new_request();
  if (!request) return request.error();
  const auto immediates = std::as_bytes(std::span(&*request, 1));
  const Record record{number(command), 0, {}, immediates};
  if (Status issued = session.append(stream, record, observer); !issued) {
    session.abandon_request(*request);
    return issued;
  }
  return session.wait(*request, observer);
}

Status Session::set_flush_policy(std::string_view name) {
  Result<std::unique_ptr<FlushPolicy>> policy = make_flush_policy(name);
  if (!policy) return policy.error();
  if (!alive()) return status();
  set_flush_policy(std::shared_ptr<FlushPolicy>(*std::move(policy)));
  return {};
}

void Session::set_flush_policy(std::shared_ptr<FlushPolicy> policy) {
  RGPU_CHECK(policy != nullptr);
  state_->core->queue.set_policy(std::move(policy));
  if (alive()) state_->connection->wake();
}

void Session::set_tracer(std::shared_ptr<Tracer> tracer) {
  state_->core->tracer.set(std::move(tracer));
}

std::string Session::flush_policy() const { return state_->core->queue.policy()->name(); }

SessionStats Session::stats() const {
  const SessionCore& core = *state_->core;
  const Counters& counters = core.counters;
  const auto value = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  SessionStats stats;
  stats.records = core.queue.issued();
  stats.frees = core.queue.frees_total();
  stats.templates = core.queue.templates_defined();
  stats.frames = value(counters.frames);
  stats.waits = value(counters.waits);
  stats.stalls = value(counters.stalls);
  stats.bytes_out = value(counters.bytes_out);
  stats.bytes_in = value(counters.bytes_in);
  stats.payload_bytes_out = value(counters.payload_bytes_out);
  stats.payload_bytes_in = value(counters.payload_bytes_in);
  stats.payload_bytes_staged = core.queue.staged_total();
  stats.payload_bytes_requested = value(counters.payload_bytes_requested);
  stats.wakeups = value(counters.wakeups);
  stats.wait_ns = value(counters.wait_ns);
  stats.server_busy_ns = value(counters.server_busy_ns);
  stats.server_idle_ns = value(counters.server_idle_ns);
  return stats;
}

bool Session::alive() const noexcept { return state_->core->fate.alive(); }

Status Session::status() const { return state_->core->fate.status(); }

void Session::close(std::chrono::milliseconds timeout) noexcept {
  if (state_->forked.load(std::memory_order_relaxed)) return;
  state_->connection->close(timeout);
  if (state_->recorder != nullptr) state_->recorder->finish();
}

void Session::abandon_after_fork() noexcept {
  state_->forked.store(true, std::memory_order_relaxed);
  state_->core->fate.end_in_forked_child();
}

}  // namespace rgpu
