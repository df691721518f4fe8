#include "server/asio_session.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include "server/crash_report.h"
#include "server/event_mark.h"
#include "wire/limits.h"

namespace rgpu::server::RGPU_IO {
namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;

constexpr auto kHelloDeadline = 10s;
constexpr auto kLingerDeadline = 2s;
constexpr auto kShutdownDeadline = 250ms;          // The same when the server itself is ending.
constexpr size_t kWholeReadSizeBytes = 64u << 10;  // From here on a read is for a payload alone.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status to_status(const boost::system::error_code& error) {
  if (error == asio::error::eof) return {Code::kDisconnected, "the client closed the connection"};
  return {Code::kDisconnected, error.message()};
}

// A completion condition: how much of the rest a write may take. The default is 64 KiB at a time.
size_t all_that_is_left(const boost::system::error_code& error, size_t) {
  return error ? 0 : std::numeric_limits<size_t>::max();
}

}  // namespace

asio::awaitable<void> Event::wait() { co_await channel_.async_receive(kAwait); }

AsioSession::AsioSession(const SessionParts& parts)
    : id_(parts.id), queue_(parts.queue), outbox_(parts.clock), linger_deadline_(kLingerDeadline) {
  // Asio makes the descriptors of a reactor non-blocking itself; io_uring waits only on others.
  fcntl(parts.socket, F_SETFL, fcntl(parts.socket, F_GETFL) & ~O_NONBLOCK);
  socket_.assign(tcp::v4(), parts.socket);
  boost::system::error_code ignored;  // On a socket that is already dead: the first read tells.
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  queue_.on_room([this] { asio::post(io_, [this] { room_.set(); }); });
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  signals_.assign(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

AsioSession::~AsioSession() = default;

void AsioSession::run(Engine& engine) {
  engine_ = &engine;
  spawn(read_loop(shared_from_this()));
  spawn(write_loop(shared_from_this()));
  spawn(signal_loop(*this));
  io_.run();
}

void AsioSession::spawn(asio::awaitable<void> task) {
  asio::co_spawn(io_, std::move(task), [this](const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      end(Status(Code::kInternal, exception.what()), Farewell::kGoodbye);
    }
  });
}

void AsioSession::close() {
  // Whatever still waits is told that it is over; the reader and the writer hold the session until
  // then.
  boost::system::error_code ignored;
  socket_.close(ignored);
  signals_.cancel(ignored);
  deadline_.cancel();
  room_.set();
  outgoing_.set();
  io_.restart();
  io_.run();
}

// ---- The end ------------------------------------------------------------------------------------

void AsioSession::end(Status reason, Farewell farewell) {
  if (ending_) return;
  ending_ = true;
  farewell_ = farewell;
  end_reason_ = std::move(reason);
  spdlog::info("session {} ends: {}", to_hex(id_),
               end_reason_.ok() ? "the client is done" : end_reason_.to_string());
  outbox_.close();
  if (farewell == Farewell::kNone) {
    io_.stop();
    return;
  }
  deadline_.expires_after(linger_deadline_);
  deadline_.async_wait([this](const boost::system::error_code& error) {
    if (!error) io_.stop();
  });
  room_.set();
  outgoing_.set();
}

asio::awaitable<void> AsioSession::signal_loop(AsioSession& self) {
  signalfd_siginfo info{};
  const auto buffer = asio::buffer(&info, sizeof info);
  const auto [error, size_bytes] = co_await self.signals_.async_read_some(buffer, kAwait);
  self.linger_deadline_ = kShutdownDeadline;
  if (!error)
    self.end(Status(Code::kDisconnected, "the server is shutting down"), Farewell::kGoodbye);
}

// ---- Reading ------------------------------------------------------------------------------------

asio::awaitable<void> AsioSession::read_loop(std::shared_ptr<AsioSession> self) {
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

asio::awaitable<void> AsioSession::discard_input() {
  for (;;) {
    const std::span<std::byte> room = input_.room(0);
    const auto buffer = asio::buffer(room.data(), room.size());
    const auto [error, size_bytes] = co_await socket_.async_read_some(buffer, kAwait);
    if (error) co_return;
  }
}

asio::awaitable<Status> AsioSession::hold(size_t size_bytes) {
  while (input_.size_bytes() < size_bytes) {
    const std::span<std::byte> room = input_.room(size_bytes);
    const auto buffer = asio::buffer(room.data(), room.size());
    const auto [error, received] = co_await socket_.async_read_some(buffer, kAwait);
    if (error) co_return to_status(error);
    input_.received(received);
  }
  co_return Status();
}

asio::awaitable<Status> AsioSession::read_payload(std::span<std::byte> target) {
  target = target.subspan(input_.take(target));
  while (!target.empty()) {
    std::array<asio::mutable_buffer, 2> buffers = {asio::buffer(target.data(), target.size())};
    asio::socket_base::message_flags flags = 0;
    if (target.size() < kWholeReadSizeBytes) {
      const std::span<std::byte> room = input_.room(0);  // What follows the payload.
      buffers[1] = asio::buffer(room.data(), room.size());
    } else {
      flags = MSG_WAITALL;  // Over io_uring one completion for all of it, else as it comes.
    }
    const auto [error, received] = co_await socket_.async_receive(buffers, flags, kAwait);
    if (error) co_return to_status(error);
    const size_t of_payload = std::min(received, target.size());
    target = target.subspan(of_payload);
    input_.received(received - of_payload);
  }
  co_return Status();
}

asio::awaitable<Result<wire::FrameHeader>> AsioSession::read_header() {
  std::array<std::byte, sizeof(wire::FrameHeader)> bytes;
  Status status = co_await hold(bytes.size());
  if (!status.ok()) co_return status;
  input_.take(bytes);
  co_return wire::parse_frame_header(bytes);
}

asio::awaitable<Result<Body>> AsioSession::read_body(wire::FrameHeader header) {
  Status status = co_await hold(header.body_size_bytes);
  if (!status.ok()) co_return status;
  co_return input_.take_body(header.body_size_bytes);
}

Status AsioSession::check_hello(const wire::Hello& hello) {
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

void AsioSession::send_hello_reply(const Status& verdict) {
  wire::HelloReply reply;
  reply.code = verdict.code();
  reply.message = verdict.message();
  reply.protocol_version = wire::kProtocolVersion;
  reply.server_version = RGPU_VERSION;
  reply.torch_version = engine_->info().torch_version;
  reply.session_id.assign(id_.begin(), id_.end());
  reply.device_type = engine_->info().device_type;
  reply.devices = engine_->info().devices;
  reply.cuda = engine_->info().cuda;
  hello_reply_ = make_frame(wire::FrameKind::kHelloReply, 0, wire::encode(reply));
  outgoing_.set();
}

asio::awaitable<Status> AsioSession::handshake() {
  const Result<wire::FrameHeader> header = co_await read_header();
  if (!header) co_return header.error();
  if (header->kind != static_cast<uint16_t>(wire::FrameKind::kHello) ||
      header->payload_size_bytes != 0 || header->sequence != 0) {
    co_return invalid("the first frame must be a Hello");
  }
  const Result<Body> body = co_await read_body(*header);
  if (!body) co_return body.error();
  const Result<wire::Hello> hello = wire::decode_hello(body->bytes());
  if (!hello) co_return hello.error();
  Status status = check_hello(*hello);
  if (status.ok()) status = engine_->greet(*hello);
  send_hello_reply(status);
  refused_ = !status.ok();
  co_return status;
}

asio::awaitable<Status> AsioSession::read_frames() {
  for (;;) {
    while (queue_.full() && !ending_) co_await room_.wait();
    const Result<wire::FrameHeader> header = co_await read_header();
    if (ending_) co_return Status(Code::kCancelled, "ending");
    if (!header) co_return header.error();
    Status status;
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

asio::awaitable<Status> AsioSession::read_batch(wire::FrameHeader header) {
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
  Result<Body> body = co_await read_body(header);
  if (!body) co_return body.error();
  batch->body = std::move(*body);
  Result<wire::BatchReader> reader = wire::BatchReader::open(batch->body.bytes());
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
    Status status = co_await read_payload(target);
    if (!status.ok()) co_return status;
    batch->segments.push_back(std::move(*segment));
  }
  batch->size_bytes = header.body_size_bytes + payload_size_bytes;
  batch->received_ns = event_time_ns();
  last_received_ = header.sequence;
  queue_.push(std::move(batch));
  co_return Status();
}

asio::awaitable<Status> AsioSession::read_goodbye(wire::FrameHeader header) {
  if (header.payload_size_bytes != 0) co_return invalid("a Goodbye has no payload");
  const Result<Body> body = co_await read_body(header);
  if (!body) co_return body.error();
  const Result<wire::Goodbye> goodbye = wire::decode_goodbye(body->bytes());
  if (!goodbye) co_return goodbye.error();
  if (goodbye->code == Code::kOk) co_return Status();
  co_return Status(Code::kDisconnected, "the client gave up: " + goodbye->message);
}

// ---- Writing ------------------------------------------------------------------------------------

void AsioSession::complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) {
  if (outbox_.add(replies, applied_sequence)) asio::post(io_, [this] { outgoing_.set(); });
}

void AsioSession::failed(Status reason) {
  asio::post(io_, [this, reason = std::move(reason)]() mutable {
    end(std::move(reason), Farewell::kGoodbye);
  });
}

asio::awaitable<Status> AsioSession::write_frames(std::vector<OutgoingFrame>& frames) {
  std::vector<asio::const_buffer> buffers;
  for (const OutgoingFrame& frame : frames) {
    buffers.emplace_back(frame.header.data(), frame.header.size());
    if (!frame.body.empty()) buffers.emplace_back(frame.body.data(), frame.body.size());
    const std::span<const std::byte> payload = frame.reply.payload;
    if (!payload.empty()) buffers.emplace_back(payload.data(), payload.size());
  }
  if (!crash_report::begin_frame()) co_return Status(Code::kCancelled, "the worker crashed");
  const auto [error, size_bytes] =
      co_await asio::async_write(socket_, buffers, all_that_is_left, kAwait);
  crash_report::end_frame();
  co_return error ? to_status(error) : Status();
}

asio::awaitable<void> AsioSession::write_loop(std::shared_ptr<AsioSession> self) {
  std::vector<OutgoingFrame> frames;
  for (;;) {
    frames.clear();  // Lets the payloads' owners go.
    if (self->hello_reply_) frames.push_back(*std::exchange(self->hello_reply_, std::nullopt));
    self->outbox_.take(frames);
    if (frames.empty()) {
      if (self->ending_) break;
      co_await self->outgoing_.wait();
      continue;
    }
    const Status status = co_await self->write_frames(frames);
    if (status.code() == Code::kCancelled) co_return;  // The crash handler has the socket.
    if (!status.ok()) self->end(status, Farewell::kNone);
  }
  if (self->farewell_ == Farewell::kGoodbye) {
    const wire::Goodbye goodbye{self->end_reason_.code(), self->end_reason_.message()};
    std::vector<std::byte> body = wire::encode(goodbye);
    frames.push_back(
        make_frame(wire::FrameKind::kGoodbye, self->outbox_.last_acked(), std::move(body)));
    const Status status = co_await self->write_frames(frames);
    if (status.code() == Code::kCancelled) co_return;
  }
  self->writer_done_ = true;
  boost::system::error_code ignored;
  self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (self->reader_done_) self->io_.stop();
}

Result<std::shared_ptr<Session>> make_session(const SessionParts& parts) {
  try {
    return std::shared_ptr<Session>(std::make_shared<AsioSession>(parts));
  } catch (const boost::system::system_error& error) {
    return Status(Code::kExhausted, error.what());
  }
}

}  // namespace rgpu::server::RGPU_IO
