// EventMark: one recording of an event, and who asked when it is reached.
// DeviceEvents: reaches the marks of an accelerator, whose work goes on after it was launched.
//
// Threading: reach() is called once, by the stream's thread or DeviceEvents' own; ask() by the
//            decode thread. DeviceEvents::add() by the decode thread.
// Lifetime:  whoever may still reach or ask holds a reference.
// Errors:    ask() returns kExhausted when kRequestsMax are waiting.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "server/engine.h"
#include "server/torch/progress.h"
#include "wire/status.h"

namespace rgpu::server {

class EventMark {
 public:
  static constexpr size_t kRequestsMax = 1024;  // As many as a client may have pending.

  // All before it is done, at this time. The replies to those who asked.
  [[nodiscard]] std::vector<OutgoingReply> reach(int64_t time_ns);
  // The reply, if it was reached already; otherwise reach() returns it. kExhausted.
  [[nodiscard]] Result<std::optional<OutgoingReply>> ask(uint64_t request);

 private:
  std::mutex mutex_;
  std::optional<int64_t> time_ns_;
  std::vector<uint64_t> requests_;
};

// The clock of the CPU's marks.
[[nodiscard]] int64_t event_time_ns() noexcept;

class DeviceEvents {
 public:
  DeviceEvents(c10::Device device, EngineSink& sink, Progress& progress);
  ~DeviceEvents();  // Leaves what was not reached.
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  // `mark` is reached when the current stream has done what was launched so far.
  void add(std::shared_ptr<EventMark> mark);

 private:
  struct Waiting {
    std::unique_ptr<c10::Event> event;
    std::shared_ptr<EventMark> mark;
  };
  void work();

  const c10::Device device_;
  EngineSink& sink_;
  Progress& progress_;
  std::unique_ptr<c10::Event> origin_;  // Times are measured from here.
  std::mutex mutex_;                    // Guards what follows.
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool closing_ = false;
  std::thread thread_;  // Started by the first add().
};

}  // namespace rgpu::server
