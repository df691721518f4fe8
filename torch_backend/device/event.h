// Event: a mark in the order of a stream, as torch.Event sees it.
//
// Recording and waiting are records like ops and wait for nothing. The time at which the server
// reached the mark is asked for by the first query(), synchronize() or ns_since().
//
// Threading: any thread; two that record the same event at once leave it at either place.
// Lifetime:  the server's event is freed with it, whatever still waits for it there.
// Errors:    an event recorded in a session that is gone counts as reached, as its work is lost;
//            otherwise what a wait of Client's raises.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "runtime/session.h"
#include "wire/batch.h"

namespace rgpu::backend {

class Event {
 public:
  Event() = default;
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(uint32_t stream);
  // Later work of `stream` runs once the event is reached.
  void block(uint32_t stream);
  // Never waits: says no until the server's answer came.
  [[nodiscard]] bool query();
  void synchronize();  // One wait, unless a query() or a synchronize() has told.
  // From `start` to here on the server's clock; 0 when the session is gone. At most one wait.
  [[nodiscard]] int64_t ns_since(Event& start);

 private:
  // One recording.
  struct Mark {
    wire::Handle handle = 0;
    uint32_t generation = 0;
    uint32_t stream = 0;
    uint64_t version = 0;
    uint64_t records = 0;  // The stream's once it was recorded; 0: it is being recorded.
  };
  // The server is asked for the time, unless it was.
  void ask();
  // One wait, unless the time is known.
  [[nodiscard]] int64_t time_ns();
  [[nodiscard]] bool lost_locked() const;  // Of a session that is gone, or never recorded.
  [[nodiscard]] bool reached_locked() const;
  // True when the time is known by now.
  [[nodiscard]] bool poll_locked();
  void drop_request_locked() noexcept;

  std::mutex mutex_;  // Never held while anything waits.
  Mark mark_;
  uint64_t request_ = 0;  // 0: none is under way.
  std::optional<int64_t> time_ns_;
};

}  // namespace rgpu::backend
