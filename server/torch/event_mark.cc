#include "server/torch/event_mark.h"

#include <c10/core/impl/VirtualGuardImpl.h>

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

std::unique_ptr<c10::Event> record_now(c10::Device device) {
  // BACKEND_DEFAULT is the flag that keeps times.
  auto event = std::make_unique<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
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

DeviceEvents::DeviceEvents(c10::Device device, EngineSink& sink, Progress& progress)
    : device_(device), sink_(sink), progress_(progress) {}

DeviceEvents::~DeviceEvents() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceEvents::add(std::shared_ptr<EventMark> mark) {
  if (!origin_) {
    origin_ = record_now(device_);
    thread_ = std::thread([this] { work(); });
  }
  Waiting waiting{record_now(device_), std::move(mark)};
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(waiting));
  changed_.notify_one();
}

void DeviceEvents::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (closing_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    // A device that failed says so to every later op; the event counts as reached.
    double time_ms = 0;
    try {
      next.event->synchronize();
      time_ms = origin_->elapsedTime(*next.event);
    } catch (const std::exception&) {
      time_ms = 0;
    }
    std::vector<OutgoingReply> replies = next.mark->reach(static_cast<int64_t>(time_ms * 1e6));
    if (!replies.empty()) sink_.complete(replies, progress_.applied());
    lock.lock();
  }
}

}  // namespace rgpu::server
