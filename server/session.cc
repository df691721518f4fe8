#include "server/session.h"

#include <spdlog/spdlog.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <limits>
#include <utility>

#include "server/crash_report.h"
#include "wire/limits.h"

namespace rgpu::server {
namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;

constexpr auto kHelloDeadline = 10s;
constexpr auto kLingerDeadline = 2s;
constexpr auto kShutdownDeadline = 250ms;  // The same when the server itself is ending.
constexpr auto kForever = std::chrono::hours(24 * 365);
constexpr size_t kInputSizeBytes = 256u << 10;
constexpr size_t kDirectReadSizeBytes = 64u << 10;  // From here on a read goes past input_.
constexpr size_t kOutboxSizeBytesMax = size_t{64} << 20;
constexpr size_t kFramesPerWriteMax = 256;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// All of it, in as few calls as the socket allows: Asio's own transfer_all() makes 64 KiB steps.
size_t all_at_once(const boost::system::error_code& error, size_t /*transferred*/) {
  return error ? 0 : std::numeric_limits<size_t>::max();
}

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status to_status(const boost::system::error_code& error) {
  if (error == asio::error::eof) return {Code::kDisconnected, "the client closed the connection"};
  return {Code::kDisconnected, error.message()};
}

std::vector<std::byte> make_frame(wire::FrameHeader header, std::span<const std::byte> body) {
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  const auto header_bytes = wire::to_bytes(header);
  std::vector<std::byte> bytes(header_bytes.size() + body.size());
  std::memcpy(bytes.data(), header_bytes.data(), header_bytes.size());
  if (!body.empty()) std::memcpy(bytes.data() + header_bytes.size(), body.data(), body.size());
  return bytes;
}

wire::FrameHeader header_of(wire::FrameKind kind, uint64_t sequence) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.sequence = sequence;
  return header;
}

}  // namespace

std::string to_hex(const SessionId& id) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : id) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Session::Session(int socket, SessionId id, BatchQueue& queue, BodyPool& bodies, WorkClock& clock)
    : id_(id),
      queue_(queue),
      bodies_(bodies),
      clock_(clock),
      linger_deadline_(kLingerDeadline),
      input_(kInputSizeBytes) {
  socket_.assign(tcp::v4(), socket);
  boost::system::error_code ignored;  // On a socket that is already dead: the first read tells.
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  queue_.on_room([this] { asio::post(io_, [this] { room_.cancel(); }); });
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  signals_.assign(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Session::~Session() = default;

void Session::run(Engine& engine) {
  engine_ = &engine;
  spawn(read_loop(shared_from_this()));
  spawn(write_loop(shared_from_this()));
  spawn(signal_loop(shared_from_this()));
  io_.run();
}

void Session::spawn(asio::awaitable<void> task) {
  asio::co_spawn(io_, std::move(task), [this](const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      end(Status(Code::kInternal, exception.what()), Farewell::kGoodbye);
    }
  });
}

// ---- The end ------------------------------------------------------------------------------------

void Session::end(Status reason, Farewell farewell) {
  if (ending_) return;
  ending_ = true;
  farewell_ = farewell;
  end_reason_ = std::move(reason);
  spdlog::info("session {} ends: {}", to_hex(id_),
               end_reason_.ok() ? "the client is done" : end_reason_.to_string());
  {
    const std::lock_guard lock(outbox_mutex_);
    outbox_closed_ = true;
  }
  outbox_room_.notify_all();
  if (farewell == Farewell::kNone) {
    io_.stop();
    return;
  }
  deadline_.expires_after(linger_deadline_);
  deadline_.async_wait([this](const boost::system::error_code& error) {
    if (!error) io_.stop();
  });
  room_.cancel();
  outgoing_.cancel();
}

asio::awaitable<void> Session::signal_loop(std::shared_ptr<Session> self) {
  signalfd_siginfo info{};
  const auto buffer = asio::buffer(&info, sizeof info);
  const auto [error, size_bytes] = co_await self->signals_.async_read_some(buffer, kAwait);
  self->linger_deadline_ = kShutdownDeadline;
  if (!error)
    self->end(Status(Code::kDisconnected, "the server is shutting down"), Farewell::kGoodbye);
}

// ---- Reading ------------------------------------------------------------------------------------

asio::awaitable<void> Session::read_loop(std::shared_ptr<Session> self) {
  self->deadline_.expires_after(kHelloDeadline);
  self->deadline_.async_wait([self](const boost::system::error_code& error) {
    if (!error) self->end(invalid("no Hello came within 10 s"), Farewell::kGoodbye);
  });
  Status status = co_await self->handshake();
  if (status.ok()) {
    self->deadline_.cancel();
    status = co_await self->read_frames();
  }
  Farewell farewell = Farewell::kGoodbye;
  if (status.ok() || status.code() == Code::kDisconnected) farewell = Farewell::kNone;
  if (self->refused_) farewell = Farewell::kLinger;
  self->end(std::move(status), farewell);
  co_await self->discard_input();
  self->reader_done_ = true;
  if (self->writer_done_) self->io_.stop();
}

asio::awaitable<void> Session::discard_input() {
  for (;;) {
    const auto buffer = asio::buffer(input_);
    const auto [error, size_bytes] = co_await socket_.async_read_some(buffer, kAwait);
    if (error) co_return;
  }
}

asio::awaitable<Status> Session::read_exactly(std::span<std::byte> target) {
  for (;;) {
    const size_t ready = std::min(target.size(), input_end_ - input_begin_);
    if (ready != 0) std::memcpy(target.data(), input_.data() + input_begin_, ready);
    input_begin_ += ready;
    target = target.subspan(ready);
    if (target.empty()) co_return Status();
    // input_ is empty from here on.
    input_begin_ = input_end_ = 0;
    if (target.size() >= kDirectReadSizeBytes) {
      const auto buffer = asio::buffer(target.data(), target.size());
      const auto [error, size_bytes] =
          co_await asio::async_read(socket_, buffer, all_at_once, kAwait);
      co_return error ? to_status(error) : Status();
    }
    const auto buffer = asio::buffer(input_);
    const auto [error, size_bytes] = co_await socket_.async_read_some(buffer, kAwait);
    if (error) co_return to_status(error);
    input_end_ = size_bytes;
  }
}

asio::awaitable<Result<wire::FrameHeader>> Session::read_header() {
  std::array<std::byte, sizeof(wire::FrameHeader)> bytes;
  const std::span<std::byte> target(bytes);
  Status status = co_await read_exactly(target);
  if (!status.ok()) co_return status;
  co_return wire::parse_frame_header(bytes);
}

Status Session::check_hello(const wire::Hello& hello) {
  if (hello.protocol_version != wire::kProtocolVersion) {
    return invalid("this server speaks protocol version " + std::to_string(wire::kProtocolVersion) +
                   ", the client " + std::to_string(hello.protocol_version));
  }
  if (!hello.resume_session.empty()) {
    return {Code::kUnimplemented,
            "this server cannot resume a session: its tensors ended with its worker process"};
  }
  // This server asks for no token, so whatever hello.token_proof holds is as good as none.
  spdlog::info("session {}: client rgpu {}, PyTorch {}", to_hex(id_), hello.client_version,
               hello.torch_version.empty() ? "none" : hello.torch_version);
  return {};
}

void Session::send_hello_reply(const Status& verdict) {
  wire::HelloReply reply;
  reply.code = verdict.code();
  reply.message = verdict.message();
  reply.protocol_version = wire::kProtocolVersion;
  reply.server_version = RGPU_VERSION;
  reply.torch_version = engine_->info().torch_version;
  reply.session_id.assign(id_.begin(), id_.end());
  reply.device_type = engine_->info().device_type;
  reply.devices = engine_->info().devices;
  const std::vector<std::byte> body = wire::encode(reply);
  OutgoingFrame frame;
  frame.bytes = make_frame(header_of(wire::FrameKind::kHelloReply, 0), body);
  {
    const std::lock_guard lock(outbox_mutex_);
    outbox_.insert(outbox_.begin(), std::move(frame));
  }
  outgoing_.cancel();
}

asio::awaitable<Status> Session::handshake() {
  const Result<wire::FrameHeader> header = co_await read_header();
  if (!header) co_return header.error();
  if (header->kind != static_cast<uint16_t>(wire::FrameKind::kHello) ||
      header->payload_size_bytes != 0 || header->sequence != 0) {
    co_return invalid("the first frame must be a Hello");
  }
  std::vector<std::byte> body(header->body_size_bytes);
  const std::span<std::byte> target(body);
  Status status = co_await read_exactly(target);
  if (!status.ok()) co_return status;
  const Result<wire::Hello> hello = wire::decode_hello(body);
  if (!hello) co_return hello.error();
  status = check_hello(*hello);
  send_hello_reply(status);
  refused_ = !status.ok();
  if (status.ok()) engine_->greet(*hello);
  co_return status;
}

asio::awaitable<Status> Session::wait_for_room() {
  while (queue_.full() && !ending_) {
    room_.expires_after(kForever);
    if (!queue_.full()) break;  // on_room() posts to this thread, so it cannot slip in between.
    co_await room_.async_wait(kAwait);
  }
  co_return Status();
}

asio::awaitable<Status> Session::read_frames() {
  for (;;) {
    Status status = co_await wait_for_room();
    const Result<wire::FrameHeader> header = co_await read_header();
    if (ending_) co_return Status(Code::kCancelled, "ending");
    if (!header) co_return header.error();
    switch (static_cast<wire::FrameKind>(header->kind)) {
      case wire::FrameKind::kBatch:
        status = co_await read_batch(*header);
        break;
      case wire::FrameKind::kGoodbye:
        co_return co_await read_goodbye(*header);
      default:
        co_return invalid("a client sends no frame of kind " + std::to_string(header->kind) +
                          " here");
    }
    if (!status.ok()) co_return status;
  }
}

asio::awaitable<Status> Session::read_batch(wire::FrameHeader header) {
  if (header.sequence != last_received_ + 1) {
    co_return invalid("batch " + std::to_string(header.sequence) + " came where batch " +
                      std::to_string(last_received_ + 1) + " was due");
  }
  if (header.stream >= limits::kStreamsMax) {
    co_return invalid("stream " + std::to_string(header.stream) + " is over the limit");
  }
  auto batch = std::make_unique<IncomingBatch>();
  batch->sequence = header.sequence;
  batch->stream = header.stream;
  batch->body = bodies_.take(header.body_size_bytes);
  const std::span<std::byte> body = batch->body.bytes();
  Status status = co_await read_exactly(body);
  if (!status.ok()) co_return status;
  Result<wire::BatchReader> reader = wire::BatchReader::open(body);
  if (!reader) co_return reader.error();
  batch->reader = *reader;
  uint64_t payload_size_bytes = 0;
  for (const uint64_t size_bytes : batch->reader.segments()) payload_size_bytes += size_bytes;
  if (batch->reader.segments().size() != header.segment_count ||
      payload_size_bytes != header.payload_size_bytes) {
    co_return invalid("the frame header and the batch disagree about the payload");
  }
  for (const uint64_t size_bytes : batch->reader.segments()) {
    Result<Segment> segment = engine_->allocate_segment(size_bytes);
    if (!segment) co_return segment.error();
    const std::span<std::byte> target = segment->bytes;
    status = co_await read_exactly(target);
    if (!status.ok()) co_return status;
    batch->segments.push_back(std::move(*segment));
  }
  batch->size_bytes = header.body_size_bytes + payload_size_bytes;
  last_received_ = header.sequence;
  queue_.push(std::move(batch));
  co_return Status();
}

asio::awaitable<Status> Session::read_goodbye(wire::FrameHeader header) {
  if (header.payload_size_bytes != 0) co_return invalid("a Goodbye has no payload");
  std::vector<std::byte> body(header.body_size_bytes);
  const std::span<std::byte> target(body);
  Status status = co_await read_exactly(target);
  if (!status.ok()) co_return status;
  const Result<wire::Goodbye> goodbye = wire::decode_goodbye(body);
  if (!goodbye) co_return goodbye.error();
  if (goodbye->code == Code::kOk) co_return Status();
  co_return Status(Code::kDisconnected, "the client gave up: " + goodbye->message);
}

// ---- Writing ------------------------------------------------------------------------------------

void Session::complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) {
  const WorkClock::Times times = replies.empty() ? WorkClock::Times{} : clock_.times();
  bool post = false;
  {
    std::unique_lock lock(outbox_mutex_);
    outbox_room_.wait(
        lock, [this] { return outbox_closed_ || outbox_size_bytes_ < kOutboxSizeBytesMax; });
    applied_ = std::max(applied_, applied_sequence);
    for (OutgoingReply& reply : replies) {
      reply.reply.payload_size_bytes = reply.payload.size();
      reply.reply.server_busy_ns = times.busy_ns;
      reply.reply.server_idle_ns = times.idle_ns;
      outbox_size_bytes_ += reply.payload.size() + sizeof reply;
      outbox_.push_back({{}, std::move(reply)});
    }
    post = !std::exchange(wake_posted_, true);
  }
  if (post) wake_writer();
}

void Session::failed(Status reason) {
  asio::post(io_, [this, reason = std::move(reason)]() mutable {
    end(std::move(reason), Farewell::kGoodbye);
  });
}

void Session::wake_writer() {
  asio::post(io_, [this] { outgoing_.cancel(); });
}

void Session::take_outgoing(std::vector<OutgoingFrame>& frames) {
  uint64_t applied = 0;
  {
    const std::lock_guard lock(outbox_mutex_);
    wake_posted_ = false;
    applied = applied_;
    if (outbox_.size() <= kFramesPerWriteMax) {
      frames.swap(outbox_);
    } else {
      const auto end = outbox_.begin() + kFramesPerWriteMax;
      std::move(outbox_.begin(), end, std::back_inserter(frames));
      outbox_.erase(outbox_.begin(), end);
      wake_posted_ = true;  // The writer comes back by itself.
      applied = last_acked_;
    }
    for (const OutgoingFrame& frame : frames) {
      if (frame.bytes.empty()) {
        outbox_size_bytes_ -= frame.reply.payload.size() + sizeof frame.reply;
      }
    }
  }
  outbox_room_.notify_all();
  for (OutgoingFrame& frame : frames) {
    if (!frame.bytes.empty()) continue;
    wire::FrameHeader header = header_of(wire::FrameKind::kReply, applied);
    header.segment_count = frame.reply.payload.empty() ? 0 : 1;
    header.payload_size_bytes = frame.reply.payload.size();
    const std::vector<std::byte> body = wire::encode(frame.reply.reply);
    frame.bytes = make_frame(header, body);
  }
  if (applied > last_acked_) {
    last_acked_ = applied;
    OutgoingFrame ack;
    ack.bytes = make_frame(header_of(wire::FrameKind::kAck, applied), {});
    frames.push_back(std::move(ack));
  }
}

asio::awaitable<Status> Session::write_frames(std::vector<OutgoingFrame>& frames) {
  std::vector<asio::const_buffer> buffers;
  for (const OutgoingFrame& frame : frames) {
    buffers.emplace_back(frame.bytes.data(), frame.bytes.size());
    if (!frame.reply.payload.empty()) {
      buffers.emplace_back(frame.reply.payload.data(), frame.reply.payload.size());
    }
  }
  if (!crash_report::begin_frame()) co_return Status(Code::kCancelled, "the worker crashed");
  const auto [error, size_bytes] =
      co_await asio::async_write(socket_, buffers, all_at_once, kAwait);
  crash_report::end_frame();
  co_return error ? to_status(error) : Status();
}

asio::awaitable<void> Session::write_loop(std::shared_ptr<Session> self) {
  std::vector<OutgoingFrame> frames;
  for (;;) {
    frames.clear();  // Lets the payloads' owners go.
    self->take_outgoing(frames);
    if (frames.empty()) {
      if (self->ending_) break;
      self->outgoing_.expires_after(kForever);
      co_await self->outgoing_.async_wait(kAwait);
      continue;
    }
    const Status status = co_await self->write_frames(frames);
    if (status.code() == Code::kCancelled) co_return;  // The crash handler has the socket.
    if (!status.ok()) self->end(status, Farewell::kNone);
  }
  if (self->farewell_ == Farewell::kGoodbye) {
    wire::FrameHeader header = header_of(wire::FrameKind::kGoodbye, self->last_acked_);
    const wire::Goodbye goodbye{self->end_reason_.code(), self->end_reason_.message()};
    const std::vector<std::byte> body = wire::encode(goodbye);
    frames.emplace_back();
    frames.back().bytes = make_frame(header, body);
    const Status status = co_await self->write_frames(frames);
    if (status.code() == Code::kCancelled) co_return;
  }
  self->writer_done_ = true;
  boost::system::error_code ignored;
  self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (self->reader_done_) self->io_.stop();
}

}  // namespace rgpu::server
