#include "server/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rgpu::server {
namespace {

constexpr size_t kSizeBytesMax = size_t{64} << 20;
constexpr size_t kRepliesPerTakeMax = 256;

size_t size_bytes_of(const OutgoingReply& reply) { return reply.payload.size() + sizeof reply; }

}  // namespace

OutgoingFrame make_frame(wire::FrameKind kind, uint64_t sequence, std::vector<std::byte> body) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.sequence = sequence;
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  OutgoingFrame frame;
  frame.header = wire::to_bytes(header);
  frame.body = std::move(body);
  return frame;
}

bool Outbox::add(std::span<OutgoingReply> replies, uint64_t applied_sequence) {
  const WorkClock::Times times = replies.empty() ? WorkClock::Times{} : clock_.times();
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return closed_ || size_bytes_ < kSizeBytesMax; });
  applied_ = std::max(applied_, applied_sequence);
  for (OutgoingReply& reply : replies) {
    reply.reply.payload_size_bytes = reply.payload.size();
    reply.reply.server_busy_ns = times.busy_ns;
    reply.reply.server_idle_ns = times.idle_ns;
    size_bytes_ += size_bytes_of(reply);
    replies_.push_back(std::move(reply));
  }
  return !std::exchange(take_due_, true);
}

void Outbox::take(std::vector<OutgoingFrame>& frames) {
  std::vector<OutgoingReply> replies;
  uint64_t applied = 0;
  {
    const std::lock_guard lock(mutex_);
    if (replies_.size() <= kRepliesPerTakeMax) {
      replies.swap(replies_);
      applied = applied_;
      take_due_ = false;
    } else {  // The writer comes back by itself.
      const auto end = replies_.begin() + kRepliesPerTakeMax;
      std::move(replies_.begin(), end, std::back_inserter(replies));
      replies_.erase(replies_.begin(), end);
      applied = last_acked_;
    }
    for (const OutgoingReply& reply : replies) size_bytes_ -= size_bytes_of(reply);
  }
  room_.notify_all();
  for (OutgoingReply& reply : replies) {
    wire::FrameHeader header;
    header.kind = static_cast<uint16_t>(wire::FrameKind::kReply);
    header.sequence = applied;
    header.segment_count = reply.payload.empty() ? 0 : 1;
    header.payload_size_bytes = reply.payload.size();
    OutgoingFrame frame;
    frame.body = wire::encode(reply.reply);
    header.body_size_bytes = static_cast<uint32_t>(frame.body.size());
    frame.header = wire::to_bytes(header);
    frame.reply = std::move(reply);
    frames.push_back(std::move(frame));
  }
  if (applied > last_acked_) {
    last_acked_ = applied;
    frames.push_back(make_frame(wire::FrameKind::kAck, applied, {}));
  }
}

void Outbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  room_.notify_all();
}

}  // namespace rgpu::server
