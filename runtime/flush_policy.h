// FlushPolicy: when the records that wait in the rings are sent.
//
// A public interface: write a class, give an object of it to a session (SessionOptions::policy,
// Session::set_flush_policy) or register it under a name. docs/flush-policies.md has an example.
//
// Threading: should_wake() is called by the issuing threads, under the session's issue lock;
//            decide() and linger() by the I/O thread alone. State shared by both must be atomic.
//            The functions at the end: any thread.
// Lifetime:  a session shares the ownership of its policy. An object with state belongs to one.
// Errors:    make_flush_policy returns kInvalidArgument that lists the valid names. A policy itself
//            has none; should_wake() must not throw, and what decide() throws ends the session.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "wire/status.h"

namespace rgpu {

// What a policy may look at. Counts are of this moment; ages and times in nanoseconds.
struct FlushState {
  uint32_t pending_records = 0;     // In the rings, not yet sent. Frees are not counted.
  uint64_t pending_size_bytes = 0;  // Ring bytes and staged upload bytes.
  int64_t oldest_age_ns = 0;        // Since the oldest pending record was appended (decide() only).
  uint32_t batches_in_flight = 0;   // Sent, not yet acknowledged as applied.
  bool waiter = false;              // A thread waits for a reply or for room: send now.
};

struct FlushDecision {
  enum class Action : uint8_t {
    kSend,   // Drain the rings into a batch and send it now.
    kAfter,  // Ask again after `delay`, or when a waiter comes, or when an acknowledgement comes.
    kPark,   // Ask again when should_wake() has said so, a waiter comes, or an acknowledgement.
  };
  Action action = Action::kSend;
  std::chrono::nanoseconds delay{0};
  uint32_t records_max = 0;  // Of the batch that kSend makes; 0: as many as fit.
  // With kAfter: ask again also when so much is pending, which costs the thread whose append
  // reaches it a system call. 0: never.
  uint64_t size_bytes = 0;
};

class FlushPolicy {
 public:
  virtual ~FlushPolicy() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  // After an append, while the I/O thread is parked: wake it? A few nanoseconds; called at most
  // once a wake-up, since the I/O thread is not parked between a wake and the next kPark.
  [[nodiscard]] virtual bool should_wake(const FlushState& state) noexcept = 0;
  // With pending_records > 0 or a waiter.
  [[nodiscard]] virtual FlushDecision decide(const FlushState& state) = 0;
  // With nothing pending: how long to look again before parking; 0: park at once. Polling a little
  // here saves the issuing thread the system call that wakes a parked I/O thread.
  [[nodiscard]] virtual std::chrono::nanoseconds linger() const {
    return std::chrono::nanoseconds{0};
  }
};

// "per_op" | "sync" | "bytes=N" | "deadline=MICROSECONDS" | "adaptive", or a registered one
[[nodiscard]] Result<std::unique_ptr<FlushPolicy>> make_flush_policy(std::string_view name);

// Makes a policy from what stands behind "NAME=" in its name; empty when nothing does.
using FlushPolicyFactory =
    std::function<Result<std::unique_ptr<FlushPolicy>>(std::string_view argument)>;
// From now on make_flush_policy() knows "NAME" and "NAME=ARGUMENT". Names are lower-case letters,
// digits and '_'. kInvalidArgument for another name and for one that is taken.
[[nodiscard]] Status register_flush_policy(std::string_view name, FlushPolicyFactory factory);

}  // namespace rgpu
