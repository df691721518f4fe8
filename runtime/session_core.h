// SessionCore: what a session's calling threads and its connection share.
//
// Threading: each member says for itself.
// Lifetime:  held by the Session and by its Connection, so that it outlives both.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/command_queue.h"
#include "runtime/counters.h"
#include "runtime/fate.h"
#include "runtime/pending_replies.h"
#include "runtime/session.h"
#include "runtime/tracer.h"
#include "runtime/transport.h"

namespace rgpu {

// The server's answer, once it came. Guarded by its mutex.
struct Handshake {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<wire::HelloReply> reply;
};

// The tracer, if there is one. Any thread.
class TracerSlot {
 public:
  void set(std::shared_ptr<Tracer> tracer) {
    const std::lock_guard lock(mutex_);
    is_set_.store(tracer != nullptr, std::memory_order_relaxed);
    tracer_.swap(tracer);
  }
  [[nodiscard]] std::shared_ptr<Tracer> get() const {
    if (!is_set_.load(std::memory_order_relaxed)) return nullptr;
    const std::lock_guard lock(mutex_);
    return tracer_;
  }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Tracer> tracer_;
};

struct SessionCore {
  SessionCore(const SessionOptions& session_options, std::shared_ptr<FlushPolicy> policy)
      : options(session_options), queue(session_options, std::move(policy)) {}

  // Ends the session, unless it ended before, and wakes whoever waits for it. Any thread.
  void lose(const Status& reason);

  const SessionOptions options;
  const Peer peer{options.host, options.port};
  Fate fate;
  Counters counters;
  PendingReplies replies{fate, counters};
  CommandQueue queue;
  Handshake handshake;
  TracerSlot tracer;
};

}  // namespace rgpu
