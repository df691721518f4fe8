// The read loop of a Connection.
#include <algorithm>
#include <array>
#include <utility>

#include "runtime/connection.h"
#include "wire/frame.h"

namespace rgpu {

namespace asio = boost::asio;
using wire::FrameHeader;
using wire::FrameKind;

namespace {

Status disconnected(std::string message) { return Status(Code::kDisconnected, std::move(message)); }

}  // namespace

std::string Connection::server_name() const { return "the rgpu server at " + core_->peer.name(); }

asio::awaitable<void> Connection::read_loop(ConnectionPtr self) {
  const Status ended = co_await self->read_frames();
  if (self->shut_) co_return;
  self->lose_here(self->closing_ ? disconnected("the session was closed") : ended);
}

// Returns why it ended; never ok.
asio::awaitable<Status> Connection::read_frames() {
  while (true) {
    const Result<FrameHeader> header = co_await reader_.next_header();
    if (!header) co_return explain_read_error(header.error());
    const auto kind = static_cast<FrameKind>(header->kind);
    if (!greeted_ && kind != FrameKind::kHelloReply && kind != FrameKind::kGoodbye) {
      co_return disconnected(core_->peer.name() +
                             " is not an rgpu server: its first frame is of kind " +
                             std::to_string(header->kind));
    }
    Status status;
    if (kind == FrameKind::kAck) {
      status = on_applied(header->sequence);
    } else if (kind == FrameKind::kReply) {
      status = co_await on_reply(*header);
    } else if (kind == FrameKind::kGoodbye) {
      status = co_await on_goodbye(*header);
    } else if (kind == FrameKind::kHelloReply && !greeted_) {
      status = co_await on_hello_reply(*header);
    } else {
      status = disconnected(server_name() + " sent an unexpected frame of kind " +
                            std::to_string(header->kind));
    }
    if (!status) co_return status;
  }
}

Status Connection::check_first_bytes() const {
  const std::span<const std::byte> rest = reader_.rest();
  if (rest.empty()) return {};
  std::array<std::byte, sizeof(FrameHeader)> start{};
  std::copy_n(rest.begin(), std::min(rest.size(), start.size()), start.begin());
  const Result<FrameHeader> header = wire::parse_frame_header(start);
  if (header) return {};
  return disconnected(core_->peer.name() + " is not an rgpu server: " + header.error().message());
}

Status Connection::explain_read_error(const Status& error) const {
  std::string reason = error.message();
  if (!greeted_) {
    RGPU_RETURN_IF_ERROR(check_first_bytes());
    if (!reason.empty()) reason = " (" + reason + ")";
    return disconnected(core_->peer.name() + " closed the connection" + reason +
                        " before it answered as an rgpu server");
  }
  if (error.code() != Code::kDisconnected) {
    return disconnected(server_name() + " broke the protocol: " + reason +
                        "; the session and its tensors are lost");
  }
  if (reason.empty()) reason = "end of the stream";
  return disconnected(server_name() + " closed the connection (" + reason +
                      "); the session and its tensors are lost");
}

asio::awaitable<Status> Connection::on_hello_reply(FrameHeader header) {
  const auto body = co_await reader_.read_body(header.body_size_bytes);
  if (!body) co_return explain_read_error(body.error());
  Result<wire::HelloReply> reply = wire::decode_hello_reply(*body);
  if (!reply) {
    co_return disconnected(core_->peer.name() +
                           " is not an rgpu server: " + reply.error().message());
  }
  if (reply->code != Code::kOk) {
    co_return disconnected(server_name() + " refused the session: " + reply->message);
  }
  if (reply->protocol_version != wire::kProtocolVersion) {
    co_return disconnected(server_name() + " speaks rgpu protocol version " +
                           std::to_string(reply->protocol_version) + ", this client version " +
                           std::to_string(wire::kProtocolVersion));
  }
  greeted_ = true;
  handshake_timer_.cancel();
  {
    const std::lock_guard lock(core_->handshake.mutex);
    core_->handshake.reply = *std::move(reply);
  }
  core_->handshake.changed.notify_all();
  co_return Status();
}

asio::awaitable<Status> Connection::on_goodbye(FrameHeader header) {
  const auto body = co_await reader_.read_body(header.body_size_bytes);
  if (!body) co_return explain_read_error(body.error());
  const Result<wire::Goodbye> goodbye = wire::decode_goodbye(*body);
  std::string why = goodbye ? goodbye->message : goodbye.error().message();
  if (why.empty()) why = "no reason given";
  if (!greeted_) co_return disconnected(server_name() + " refused the session: " + why);
  co_return disconnected(server_name() + " ended the session: " + why +
                         "; the session and its tensors are lost");
}

Status Connection::on_applied(uint64_t sequence) {
  if (sequence < batches_applied_ || sequence > batches_sent_) {
    return disconnected(server_name() + " broke the protocol: it acknowledged batch " +
                        std::to_string(sequence) + " after " + std::to_string(batches_applied_) +
                        " of " + std::to_string(batches_sent_) +
                        "; the session and its tensors are lost");
  }
  if (sequence == batches_applied_) return {};
  batches_applied_ = sequence;
  if (const std::shared_ptr<Tracer> tracer = core_->tracer.get()) {
    tracer->applied(sequence, Clock::now());
  }
  core_->queue.note_in_flight(static_cast<uint32_t>(batches_sent_ - batches_applied_));
  if (core_->queue.flush_state().pending_records != 0) look();
  return {};
}

asio::awaitable<Status> Connection::on_reply(FrameHeader header) {
  Status status = on_applied(header.sequence);
  if (!status) co_return status;
  const auto body = co_await reader_.read_body(header.body_size_bytes);
  if (!body) co_return explain_read_error(body.error());
  Result<wire::Reply> reply = wire::decode_reply(*body);
  if (!reply) co_return explain_read_error(reply.error());
  // Held here too, so that the memory outlives the read whatever the waiter does.
  Result<std::optional<Destination>> wanted = core_->replies.claim(reply->request);
  if (!wanted) co_return explain_read_error(wanted.error());
  const std::optional<Destination> destination = *std::move(wanted);
  const uint64_t size = header.payload_size_bytes;
  const bool unexpected = destination && !reply->failed && size != destination->bytes.size();
  if (size != reply->payload_size_bytes || unexpected || (reply->failed && size != 0)) {
    co_return disconnected("internal error: " + server_name() + " sent " + std::to_string(size) +
                           " bytes where " + std::to_string(reply->payload_size_bytes) +
                           " were announced and " +
                           std::to_string(destination ? destination->bytes.size() : 0) +
                           " expected; the session and its tensors are lost");
  }
  if (size != 0 && destination) {
    status = co_await reader_.read_payload(destination->bytes);
  } else {
    status = co_await reader_.skip_payload(size);
  }
  if (!status) co_return explain_read_error(status);
  core_->counters.server_busy_ns.store(reply->server_busy_ns, std::memory_order_relaxed);
  core_->counters.server_idle_ns.store(reply->server_idle_ns, std::memory_order_relaxed);
  core_->replies.complete(*std::move(reply));
  co_return Status();
}

}  // namespace rgpu
