// ThreadExecutor: the CPU's streams: an ordered queue and a thread for each that is used.
//
// As long as a session uses one stream only, its runs execute on the decode thread itself, which
// saves them a change of threads. Streams share threads when there are very many.
//
// Threading: as server/executor.h says.
// Lifetime:  the destructor executes what is queued and joins the threads.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "server/executor.h"
#include "server/work_clock.h"

namespace rgpu::server {

class ThreadExecutor final : public Executor {
 public:
  // `prepare_thread` runs first on each thread that is started.
  ThreadExecutor(WorkClock& clock, std::function<void()> prepare_thread)
      : clock_(clock), prepare_thread_(std::move(prepare_thread)) {}
  ~ThreadExecutor() override;
  void submit(std::unique_ptr<Run> run) override;
  void drain() override;

 private:
  static constexpr size_t kThreadsMax = 64;
  static constexpr size_t kRunsQueuedMax = 64;  // Of one thread.
  struct Lane {
    std::thread thread;
    std::deque<std::unique_ptr<Run>> queue;  // The front one may be executing.
    std::condition_variable changed;
  };

  void work(Lane& lane);
  [[nodiscard]] bool is_ready(const Run& run) const;

  WorkClock& clock_;
  const std::function<void()> prepare_thread_;
  std::optional<uint32_t> only_stream_;  // Decode thread's, as is threaded_.
  bool threaded_ = false;
  std::map<uint32_t, size_t> lane_of_stream_;  // In the order of their first use. Decode thread's.

  std::mutex mutex_;  // Guards what follows.
  std::array<Lane, kThreadsMax> lanes_;
  std::condition_variable completed_;
  std::map<uint32_t, uint64_t> last_completed_;  // Run id by stream.
  bool closing_ = false;
};

}  // namespace rgpu::server
