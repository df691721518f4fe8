#include "server/event_mark.h"

#include <chrono>
#include <string>
#include <utility>

namespace rgpu::server {
namespace {

OutgoingReply time_reply(uint64_t request, int64_t time_ns) {
  OutgoingReply outgoing;
  outgoing.reply.request = request;
  wire::Arg time;
  time.kind = wire::ArgKind::kInt;
  time.integer = time_ns;
  outgoing.reply.values.push_back(std::move(time));
  return outgoing;
}

}  // namespace

std::vector<OutgoingReply> EventMark::reach(int64_t time_ns) {
  const std::lock_guard lock(mutex_);
  time_ns_ = time_ns;
  std::vector<OutgoingReply> replies;
  replies.reserve(requests_.size());
  for (const uint64_t request : requests_) replies.push_back(time_reply(request, time_ns));
  requests_.clear();
  return replies;
}

Result<std::optional<OutgoingReply>> EventMark::ask(uint64_t request) {
  const std::lock_guard lock(mutex_);
  if (time_ns_) return std::optional(time_reply(request, *time_ns_));
  if (requests_.size() == kRequestsMax) {
    return Status(Code::kExhausted, std::to_string(kRequestsMax) + " requests wait for one event");
  }
  requests_.push_back(request);
  return std::optional<OutgoingReply>();
}

int64_t event_time_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace rgpu::server
