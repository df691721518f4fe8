// The write loop of a Connection.
#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "runtime/connection.h"
#include "runtime/upload_feed.h"
#include "wire/frame.h"

namespace rgpu {

namespace asio = boost::asio;
using boost::system::error_code;
using wire::FrameHeader;
using wire::FrameKind;

namespace {

// Frees that nothing else takes along wait so long.
constexpr std::chrono::milliseconds kFreesDelay{50};
// How long a closing connection waits for the server to close its side, so that neither sees a
// reset. What the server does after our goodbye nobody can observe, so this is courtesy.
constexpr std::chrono::milliseconds kCourtesy{250};

// A view of some buffers that is cheap to copy, which Asio does with buffer sequences.
struct GatherView {
  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  const_iterator first;
  const_iterator last;
  const_iterator begin() const { return first; }
  const_iterator end() const { return last; }
};

asio::const_buffer buffer_of(std::span<const std::byte> bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace

asio::awaitable<void> Connection::write_loop(ConnectionPtr self) {
  error_code error = co_await self->send_hello();
  while (!error && !self->shut_) {
    const Step step = self->plan();
    if (step.kind == Step::Kind::kSend) {
      error = co_await self->send_batch(step.records_max);
    } else if (step.kind == Step::Kind::kPause) {
      co_await self->pause(step.pause);
    } else if (step.kind == Step::Kind::kFinish) {
      co_await self->send_goodbye();
      co_return;
    }
  }
  // Why a write failed (a refusal, a goodbye, another protocol) the read loop will find out: what
  // the peer has said is still to be read, and after it the end of the stream.
}

Connection::Step Connection::plan() {
  if (core_->queue.policy_version() != policy_version_) {
    policy_version_ = core_->queue.policy_version();
    policy_ = core_->queue.policy();
  }
  const Clock::time_point now = Clock::now();
  FlushState state = core_->queue.flush_state();
  if (state.pending_records == 0) {
    pending_since_.reset();
    return plan_idle(now);
  }
  idle_since_.reset();
  frees_since_.reset();
  if (!pending_since_) pending_since_ = now;
  if (closing_) return {Step::Kind::kSend, 0, {}};
  state.oldest_age_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now - *pending_since_).count();
  const FlushDecision decision = policy_->decide(state);
  switch (decision.action) {
    case FlushDecision::Action::kSend:
      return {Step::Kind::kSend, decision.records_max, {}};
    case FlushDecision::Action::kAfter:
      return doze(decision, state);
    case FlushDecision::Action::kPark:
      break;
  }
  return park({});
}

Connection::Step Connection::plan_idle(Clock::time_point now) {
  if (closing_) return {Step::Kind::kFinish, 0, {}};
  const uint64_t frees = core_->queue.frees().size();
  if (frees == 0) {
    frees_since_.reset();
  } else if (!frees_since_) {
    frees_since_ = now;
  }
  const Clock::duration frees_age = frees_since_ ? now - *frees_since_ : Clock::duration{0};
  if (frees >= FreeList::kLong || frees_age >= kFreesDelay) {
    frees_since_.reset();
    return {Step::Kind::kSend, 0, {}};
  }
  const Clock::duration linger = policy_->linger();
  if (!idle_since_) {
    idle_since_ = now;
    poll_interval_ = linger / 8;
  }
  const Clock::duration idle = now - *idle_since_;
  if (idle < linger) {
    const Clock::duration interval = std::min(poll_interval_, linger - idle);
    poll_interval_ *= 2;
    return {Step::Kind::kPause, 0, interval};
  }
  if (frees != 0) return park(kFreesDelay - frees_age);
  return core_->queue.frees().arm_wake() ? park({}) : Step{};
}

Connection::Step Connection::doze(const FlushDecision& decision, const FlushState& state) {
  const bool wanted = decision.size_bytes > state.pending_size_bytes;
  if (wanted && !core_->queue.try_doze(decision.size_bytes)) return {};
  parked_ = wanted;
  return {Step::Kind::kPause, 0, decision.delay};
}

Connection::Step Connection::park(std::optional<Clock::duration> pause) {
  if (!core_->queue.try_park()) return {};
  parked_ = true;
  return {Step::Kind::kPause, 0, pause};
}

asio::awaitable<void> Connection::pause(std::optional<Clock::duration> duration) {
  if (!looking_) {
    if (duration) {
      pause_timer_.expires_after(*duration);
    } else {
      pause_timer_.expires_at(Clock::time_point::max());
    }
    co_await pause_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  looking_ = false;
  if (!parked_) co_return;
  parked_ = false;
  core_->queue.unpark();
}

asio::awaitable<error_code> Connection::send_hello() {
  const SessionOptions& options = core_->options;
  wire::Hello hello;
  hello.protocol_version = wire::kProtocolVersion;
  hello.client_version = options.client_version;
  hello.cuda = core_->options.cuda;
  hello.torch_version = options.torch_version;
  const std::vector<std::byte> body = wire::encode(hello);
  const auto preamble = wire::to_bytes(wire::Preamble{});
  FrameHeader header;
  header.kind = static_cast<uint16_t>(FrameKind::kHello);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  const auto header_bytes = wire::to_bytes(header);
  gather_.assign({buffer_of(preamble), buffer_of(header_bytes), buffer_of(body)});
  bump(core_->counters.frames, 1);
  co_return co_await write_gathered(SIZE_MAX);
}

asio::awaitable<error_code> Connection::send_batch(uint32_t records_max) {
  CommandQueue& queue = core_->queue;
  const std::shared_ptr<Tracer> tracer = core_->tracer.get();
  SentBatch sent;
  if (tracer) sent.began = Clock::now();
  drain_.fill(batch_, records_max);
  pending_since_.reset();
  queue.announce_room();
  if (batch_.empty()) co_return error_code();
  const std::span<const std::byte> body = batch_.encoder.finish();
  FrameHeader header;
  header.kind = static_cast<uint16_t>(FrameKind::kBatch);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  header.stream = batch_.stream;
  header.segment_count = batch_.encoder.segment_count();
  header.payload_size_bytes = batch_.payload_size_bytes;
  header.sequence = ++batches_sent_;
  queue.note_in_flight(static_cast<uint32_t>(batches_sent_ - batches_applied_));
  const auto header_bytes = wire::to_bytes(header);
  gather_.assign({buffer_of(header_bytes), buffer_of(body)});
  bump(core_->counters.frames, 1);
  const error_code error = co_await write_payloads(header_bytes.size() + body.size());
  if (tracer) {
    sent.sequence = header.sequence;
    sent.last_record = drain_.drained();
    sent.records = batch_.encoder.record_count();
    sent.size_bytes = sizeof(FrameHeader) + body.size() + batch_.payload_size_bytes;
    sent.ended = Clock::now();
    tracer->sent(sent);
  }
  if (batch_.payloads.empty()) co_return error;
  queue.release_staged(batch_.payload_size_bytes);
  batch_.payloads.clear();
  queue.announce_room();
  co_return error;
}

asio::awaitable<error_code> Connection::send_goodbye() {
  const std::vector<std::byte> body = wire::encode(wire::Goodbye{});
  FrameHeader header;
  header.kind = static_cast<uint16_t>(FrameKind::kGoodbye);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  header.sequence = batches_sent_;
  const auto header_bytes = wire::to_bytes(header);
  gather_.assign({buffer_of(header_bytes), buffer_of(body)});
  bump(core_->counters.frames, 1);
  const error_code error = co_await write_gathered(SIZE_MAX);
  if (error || shut_) co_return error;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  const auto courtesy_ends = Clock::now() + kCourtesy;
  if (courtesy_ends < close_timer_.expiry()) close_timer_.expires_at(courtesy_ends);
  co_return error;
}

// What is gathered already, and then the batch's payloads.
asio::awaitable<error_code> Connection::write_payloads(size_t lead_size_bytes) {
  for (const Payload& payload : batch_.payloads) {
    if (!payload.feed) {
      gather_.push_back(buffer_of(payload.bytes));
      continue;
    }
    error_code error = co_await write_gathered(lead_size_bytes);
    if (!error) error = co_await write_feed(*payload.feed);
    if (error) co_return error;
    gather_.clear();
    lead_size_bytes = 0;
  }
  co_return co_await write_gathered(lead_size_bytes);
}

asio::awaitable<error_code> Connection::write_feed(UploadFeed& feed) {
  error_code error;
  const auto send = [&](std::span<const std::byte> bytes) {
    return socket_.write_some(buffer_of(bytes), error);
  };
  while (!feed.is_sent()) {
    const size_t size = feed.send(send);
    bump(core_->counters.bytes_out, size);
    bump(core_->counters.payload_bytes_out, size);
    if (error == asio::error::would_block) {
      const auto waited = co_await socket_.async_wait(asio::ip::tcp::socket::wait_write,
                                                      asio::as_tuple(asio::use_awaitable));
      error = std::get<0>(waited);
    } else if (!error && size != 0) {
      co_await asio::post(asio::use_awaitable);  // Replies get their turn.
    }
    if (error) co_return error;
    if (feed.is_abandoned() || shut_) co_return asio::error::operation_aborted;
  }
  co_return error;
}

asio::awaitable<error_code> Connection::write_gathered(size_t lead_size_bytes) {
  asio::const_buffer* at = gather_.data();
  asio::const_buffer* const end = at + gather_.size();
  while (true) {
    while (at != end && at->size() == 0) ++at;
    if (at == end) co_return error_code();
    const GatherView view{at, end};
    const auto [error, size] =
        co_await socket_.async_write_some(view, asio::as_tuple(asio::use_awaitable));
    bump(core_->counters.bytes_out, size);
    const size_t lead = std::min(size, lead_size_bytes);
    lead_size_bytes -= lead;
    bump(core_->counters.payload_bytes_out, size - lead);
    if (error) co_return error;
    size_t written = size;
    while (at != end && written >= at->size()) written -= (at++)->size();
    if (written != 0) *at += written;
  }
}

}  // namespace rgpu
