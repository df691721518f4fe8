// Executor: runs what was decoded, in order on each stream.
//
// Threading: submit() and drain() are the decode thread's. A Run executes on the thread that its
//            stream belongs to; two runs of one stream never at once, and in the order submitted.
// Lifetime:  a run is destroyed right after it executed, on that same thread.
// Errors:    none: runs report their own (server/engine.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace rgpu::server {

// Part of a batch on one stream.
class Run {
 public:
  // Another stream's run that must be done first. It was submitted earlier, so that no circle can
  // close.
  struct After {
    uint32_t stream = 0;
    uint64_t id = 0;
  };

  virtual ~Run() = default;
  virtual void execute() = 0;

  uint64_t id = 0;  // 1, 2, 3, … over all streams of the session.
  uint32_t stream = 0;
  std::vector<After> after;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // May execute the run before it returns. Waits while too much is queued.
  virtual void submit(std::unique_ptr<Run> run) = 0;
  // Returns when everything submitted has executed.
  virtual void drain() = 0;
};

}  // namespace rgpu::server
