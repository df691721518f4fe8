#include "runtime/pending_replies.h"

#include <string>

#include "runtime/wait.h"

namespace rgpu {

PendingReplies::PendingReplies(Fate& fate, Counters& counters)
    : fate_(fate), counters_(counters), slots_(new Slot[kRequestsMax]) {
  unused_.reserve(kRequestsMax);
  for (uint32_t index = kRequestsMax; index-- > 0;) {
    slots_[index].request = index;
    unused_.push_back(index);
  }
}

PendingReplies::Slot* PendingReplies::find(uint64_t request) {
  Slot& slot = slots_[request % kRequestsMax];
  return slot.stage != Stage::kUnused && slot.request == request ? &slot : nullptr;
}

Destination PendingReplies::reset(Slot& slot) {
  slot.stage = Stage::kUnused;
  slot.reply = {};
  unused_.push_back(static_cast<uint32_t>(slot.request % kRequestsMax));
  return std::exchange(slot.destination, {});
}

void PendingReplies::will_not_come(const Destination& destination) noexcept {
  counters_.payload_bytes_requested.fetch_sub(destination.bytes.size(), std::memory_order_relaxed);
}

Result<uint64_t> PendingReplies::open(Destination destination) {
  if (!fate_.alive()) return fate_.status();
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) {
    return Status(Code::kExhausted, std::to_string(kRequestsMax) +
                                        " requests are pending in this session, which is the most");
  }
  Slot& slot = slots_[unused_.back()];
  unused_.pop_back();
  slot.request += kRequestsMax;  // A number is never used twice, and never 0.
  slot.stage = Stage::kPending;
  counters_.payload_bytes_requested.fetch_add(destination.bytes.size(), std::memory_order_relaxed);
  slot.destination = std::move(destination);
  return slot.request;
}

void PendingReplies::abandon(uint64_t request) noexcept {
  Destination released;
  const std::lock_guard lock(mutex_);
  if (Slot* slot = find(request)) released = reset(*slot);
  will_not_come(released);
}

void PendingReplies::disown(uint64_t request) noexcept {
  Destination released;
  const std::lock_guard lock(mutex_);
  Slot* slot = find(request);
  if (slot == nullptr) return;
  if (slot->stage == Stage::kPending) {
    slot->stage = Stage::kUnwanted;
  } else if (slot->stage == Stage::kReady) {
    released = reset(*slot);
  }
}

Result<wire::Reply> PendingReplies::wait(uint64_t request, WaitObserver& observer) {
  // Counted also when the reply is here already: the count is the program's, not the machine's.
  const CountedWait counted(counters_, observer);
  Destination released;  // Before the lock, so that it ends after it.
  std::unique_lock lock(mutex_);
  Slot* slot = find(request);
  if (slot == nullptr || slot->stage == Stage::kUnwanted) {
    return Status(Code::kInvalidArgument, "request " + std::to_string(request) + " is not pending");
  }
  const auto over = [&] { return slot->stage == Stage::kReady || !fate_.alive(); };
  if (!stand_still(lock, slot->changed, observer, over)) {
    slot->stage = Stage::kUnwanted;
    return Status(Code::kCancelled, "the wait was interrupted");
  }
  if (slot->stage == Stage::kReady) {
    wire::Reply reply = std::move(slot->reply);
    released = reset(*slot);
    return reply;
  }
  // Lost. The I/O thread may be reading into the destination at this moment, but then it holds the
  // owner itself.
  released = reset(*slot);
  lock.unlock();
  return fate_.status();
}

std::optional<Result<wire::Reply>> PendingReplies::poll(uint64_t request) {
  Destination released;
  std::unique_lock lock(mutex_);
  Slot* slot = find(request);
  if (slot == nullptr || slot->stage == Stage::kUnwanted) {
    return Status(Code::kInvalidArgument, "request " + std::to_string(request) + " is not pending");
  }
  if (slot->stage == Stage::kReady) {
    Result<wire::Reply> reply = std::move(slot->reply);
    released = reset(*slot);
    return reply;
  }
  if (fate_.alive()) return std::nullopt;
  released = reset(*slot);
  lock.unlock();
  return fate_.status();
}

Result<std::optional<Destination>> PendingReplies::claim(uint64_t request) {
  const std::lock_guard lock(mutex_);
  Slot* slot = find(request);
  if (slot == nullptr || slot->stage == Stage::kReady) {
    return Status(Code::kInvalidArgument, "the server replied to request " +
                                              std::to_string(request) + ", which is not pending");
  }
  if (slot->stage == Stage::kUnwanted) return std::optional<Destination>();
  return std::optional<Destination>(slot->destination);
}

void PendingReplies::complete(wire::Reply reply) {
  Destination released;
  const std::lock_guard lock(mutex_);
  Slot* slot = find(reply.request);
  if (slot != nullptr && reply.failed) will_not_come(slot->destination);
  if (slot == nullptr) return;  // Ended while the payload arrived: the session was being closed.
  if (slot->stage == Stage::kUnwanted) {
    released = reset(*slot);
    return;
  }
  slot->reply = std::move(reply);
  slot->stage = Stage::kReady;
  released = std::exchange(slot->destination, {});
  slot->changed.notify_all();
}

void PendingReplies::wake_all() {
  const std::lock_guard lock(mutex_);
  for (uint32_t index = 0; index < kRequestsMax; ++index) slots_[index].changed.notify_all();
}

void PendingReplies::release_destinations() {
  std::vector<Destination> released;
  const std::lock_guard lock(mutex_);
  for (uint32_t index = 0; index < kRequestsMax; ++index) {
    Slot& slot = slots_[index];
    if (slot.stage == Stage::kUnwanted) {
      released.push_back(reset(slot));
    } else if (slot.stage != Stage::kUnused) {
      released.push_back(std::exchange(slot.destination, {}));
    }
  }
}

}  // namespace rgpu
