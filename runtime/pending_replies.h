// PendingReplies: the requests that were issued and whose reply has not been handed out.
//
// Threading: open(), abandon(), disown(), poll() and wait() by issuing threads; claim(), complete()
// by the I/O thread. Lifetime:  a destination's owner is held until its reply came, also when its
// waiter gave up, and
//            released without the lock, since it may run any destructor.
// Errors:    open() returns kExhausted when kRequestsMax are pending; claim() kInvalidArgument for
//            a number that is not pending (the server's fault).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/counters.h"
#include "runtime/fate.h"
#include "runtime/session.h"

namespace rgpu {

class PendingReplies {
 public:
  static constexpr uint32_t kRequestsMax = 1024;

  PendingReplies(Fate& fate, Counters& counters);

  [[nodiscard]] Result<uint64_t> open(Destination destination);
  // The record was never issued: no reply will come.
  void abandon(uint64_t request) noexcept;
  // Nobody wants the reply any more; it is discarded when it comes.
  void disown(uint64_t request) noexcept;
  // Ends the request. kCancelled when the observer gave up; the reply is then discarded.
  [[nodiscard]] Result<wire::Reply> wait(uint64_t request, WaitObserver& observer);

  // The reply if it is here, or why none will come; either ends the request. nullopt: not yet.
  [[nodiscard]] std::optional<Result<wire::Reply>> poll(uint64_t request);

  // A reply has begun to arrive: where its payload goes. nullopt: nobody wants it any more.
  [[nodiscard]] Result<std::optional<Destination>> claim(uint64_t request);
  // The reply and its payload are here.
  void complete(wire::Reply reply);
  // After the session was lost: every waiter looks at the fate. Any thread.
  void wake_all();
  // No reply will arrive any more: lets go of all destinations. I/O thread, at its end.
  void release_destinations();

 private:
  enum class Stage : uint8_t { kUnused, kPending, kReady, kUnwanted };
  struct Slot {
    Stage stage = Stage::kUnused;
    uint64_t request = 0;  // generation * kRequestsMax + index
    Destination destination;
    wire::Reply reply;
    std::condition_variable changed;
  };

  Slot* find(uint64_t request);  // nullptr: not in use. Under mutex_.
  // Frees the slot; the caller lets go of what is returned after it has let go of the mutex.
  [[nodiscard]] Destination reset(Slot& slot);

  void will_not_come(const Destination& destination) noexcept;  // Its bytes.

  Fate& fate_;
  Counters& counters_;
  mutable std::mutex mutex_;
  std::unique_ptr<Slot[]> slots_;
  std::vector<uint32_t> unused_;
};

}  // namespace rgpu
