// ProgressLine: one line on the terminal about a transfer that a thread waits for, rewritten in
// place and cleared when the wait ends. Nothing where stderr is no terminal or RGPU_PROGRESS=0.
//
// Threading: one object a thread; one thread at a time has the line.
// Errors:    none: what cannot be written is not shown.
#pragma once

#include <chrono>
#include <string>

#include "runtime/session.h"

namespace rgpu::backend {

class ProgressLine {
 public:
  void begin(const SessionStats& now);  // A wait begins.
  // During a wait, every 50 ms or so. Shows nothing in its first second.
  void update(const SessionStats& now);
  // The wait is over.
  void clear() noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_ = false;
  Clock::time_point began_;
  SessionStats at_begin_;
};

// "rgpu: down 12.3 of 64.0 MB, 4.1 MB/s, 13 s left"; empty when nothing worth telling is left.
[[nodiscard]] std::string progress_text(const SessionStats& begin, const SessionStats& now,
                                        std::chrono::duration<double> elapsed);

}  // namespace rgpu::backend
