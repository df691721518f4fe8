// DeviceEvents: reaches the marks of an accelerator, whose work goes on after it was launched.
//
// Threading: add() is the decode thread's; marks are reached on a thread of its own.
// Errors:    a device that failed says so to every later op; its events count as reached.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "server/event_mark.h"
#include "server/progress.h"

namespace rgpu::server {

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
