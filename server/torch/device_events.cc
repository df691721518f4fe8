#include "server/torch/device_events.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace rgpu::server {
namespace {

std::unique_ptr<c10::Event> record_now(c10::Device device) {
  // BACKEND_DEFAULT is the flag that keeps times.
  auto event = std::make_unique<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

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
