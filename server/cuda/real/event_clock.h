// EventClock: when events of a device were reached, in nanoseconds, on one clock.
//
// CUDA tells the time between two events as a float of milliseconds, which loses microseconds
// beyond some seconds. So times are counted from a reference event that moves along.
//
// Threading: any thread, with the device's context current.
// Errors:    CUresult.
#pragma once

#include <cstdint>
#include <mutex>

#include "server/cuda/real/completions.h"

namespace rgpu::server::cuda {

class EventClock {
 public:
  // `reference`: an event that was reached at `time_ns`.
  EventClock(const DriverSymbols& driver, Mark reference, int64_t time_ns);
  // Of an event that was reached.
  [[nodiscard]] int time_of(const Mark& mark, int64_t& time_ns);

 private:
  const DriverSymbols& driver_;
  std::mutex mutex_;  // Guards what follows.
  Mark reference_;
  int64_t reference_time_ns_;
};

}  // namespace rgpu::server::cuda
