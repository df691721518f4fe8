#include "runtime/flush_policy.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

namespace rgpu {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using Action = FlushDecision::Action;

FlushDecision send() { return {Action::kSend, nanoseconds{0}}; }
FlushDecision after(nanoseconds delay, uint64_t size_bytes = 0) {
  return {Action::kAfter, delay, /*records_max=*/0, size_bytes};
}
FlushDecision park() { return {Action::kPark, nanoseconds{0}}; }

// Every record in a frame of its own, at once: what the others are measured against.
class PerOpPolicy final : public FlushPolicy {
 public:
  std::string name() const override { return "per_op"; }
  bool should_wake(const FlushState&) noexcept override { return true; }
  FlushDecision decide(const FlushState&) override {
    return {Action::kSend, nanoseconds{0}, /*records_max=*/1};
  }
};

class SyncPolicy final : public FlushPolicy {
 public:
  std::string name() const override { return "sync"; }
  bool should_wake(const FlushState& state) noexcept override { return state.waiter; }
  FlushDecision decide(const FlushState& state) override { return state.waiter ? send() : park(); }
};

class BytesPolicy final : public FlushPolicy {
 public:
  explicit BytesPolicy(uint64_t size_bytes) : size_bytes_(size_bytes) {}
  std::string name() const override { return "bytes=" + std::to_string(size_bytes_); }
  bool should_wake(const FlushState& state) noexcept override { return due(state); }
  FlushDecision decide(const FlushState& state) override { return due(state) ? send() : park(); }

 private:
  bool due(const FlushState& state) const noexcept {
    return state.waiter || state.pending_size_bytes >= size_bytes_;
  }
  const uint64_t size_bytes_;
};

class DeadlinePolicy final : public FlushPolicy {
 public:
  explicit DeadlinePolicy(uint64_t deadline_us) : deadline_(microseconds(deadline_us)) {}
  std::string name() const override {
    return "deadline=" + std::to_string(duration_cast<microseconds>(deadline_).count());
  }
  bool should_wake(const FlushState&) noexcept override { return true; }
  FlushDecision decide(const FlushState& state) override {
    const nanoseconds age{state.oldest_age_ns};
    return state.waiter || age >= deadline_ ? send() : after(deadline_ - age);
  }
  nanoseconds linger() const override { return microseconds(300); }

 private:
  const nanoseconds deadline_;
};

// One step of AdaptivePolicy's patience.
struct Patience {
  uint32_t batches_in_flight_max;  // Holds up to this many,
  nanoseconds age;                 // until the oldest record is so old
  uint64_t size_bytes;             // or so much is pending.
};

// A batch and its acknowledgement cost both sides about 100 µs of processor time together, so that
// even an idle peer is not worth a batch of a few records: it waits 300 µs for company (a thread
// that asks for a value waits for none of this). With one batch in flight the peer will be idle
// within a round trip; with more it has work, and what waits here costs it nothing: fewer, larger
// batches. Over a long line there are always many in flight, and one batch leaves every 2 ms.
constexpr Patience kPatience[] = {
    {0, microseconds(300), 8u << 10},
    {1, microseconds(1000), 16u << 10},
    {std::numeric_limits<uint32_t>::max(), microseconds(2000), 16u << 10},
};

class AdaptivePolicy final : public FlushPolicy {
 public:
  std::string name() const override { return "adaptive"; }
  bool should_wake(const FlushState&) noexcept override { return true; }
  FlushDecision decide(const FlushState& state) override {
    if (state.waiter) return send();
    const Patience* step = kPatience;
    while (state.batches_in_flight > step->batches_in_flight_max) ++step;
    const nanoseconds age{state.oldest_age_ns};
    if (age >= step->age || state.pending_size_bytes >= step->size_bytes) return send();
    return after(step->age - age, step->size_bytes);
  }
  nanoseconds linger() const override { return microseconds(300); }
};

// The number after "name=", or 0 when there is none.
uint64_t parse_amount(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  uint64_t amount = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), amount);
  return error == std::errc() && end == name.data() + name.size() ? amount : 0;
}

constexpr uint64_t kDeadlineUsMax = 10'000'000;  // Ten seconds: a larger one is a mistake of units.

constexpr std::string_view kBuiltIn[] = {"per_op", "sync", "bytes", "deadline", "adaptive"};

// What register_flush_policy() was given. Never destroyed, so that it may be used at any time.
struct Registry {
  std::mutex mutex;
  std::map<std::string, FlushPolicyFactory, std::less<>> factories;  // Guarded by mutex.

  [[nodiscard]] static Registry& get() {
    static auto* const registry = new Registry;
    return *registry;
  }
};

// nullptr: not a built-in one's name.
std::unique_ptr<FlushPolicy> make_built_in(std::string_view name) {
  if (name == "per_op") return std::make_unique<PerOpPolicy>();
  if (name == "sync") return std::make_unique<SyncPolicy>();
  if (name == "adaptive") return std::make_unique<AdaptivePolicy>();
  if (const uint64_t size_bytes = parse_amount(name, "bytes="); size_bytes != 0) {
    return std::make_unique<BytesPolicy>(size_bytes);
  }
  if (const uint64_t us = parse_amount(name, "deadline="); us != 0 && us <= kDeadlineUsMax) {
    return std::make_unique<DeadlinePolicy>(us);
  }
  return nullptr;
}

Status unknown_policy(std::string_view name, std::string_view registered) {
  return Status(Code::kInvalidArgument,
                "unknown flush policy \"" + std::string(name) +
                    "\": use per_op, sync, bytes=N, deadline=MICROSECONDS (1 to 10000000), " +
                    std::string(registered) + "or adaptive");
}

}  // namespace

Result<std::unique_ptr<FlushPolicy>> make_flush_policy(std::string_view name) {
  if (std::unique_ptr<FlushPolicy> policy = make_built_in(name)) return policy;
  const size_t end = std::min(name.find('='), name.size());
  Registry& registry = Registry::get();
  FlushPolicyFactory factory;
  std::string registered;
  {
    const std::lock_guard lock(registry.mutex);
    const auto found = registry.factories.find(name.substr(0, end));
    if (found != registry.factories.end()) factory = found->second;
    for (const auto& [known, ignored] : registry.factories) registered += known + ", ";
  }
  if (factory == nullptr) return unknown_policy(name, registered);
  Result<std::unique_ptr<FlushPolicy>> made = factory(name.substr(std::min(end + 1, name.size())));
  if (made && *made == nullptr) return unknown_policy(name, registered);
  return made;
}

Status register_flush_policy(std::string_view name, FlushPolicyFactory factory) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), allowed) || factory == nullptr) {
    return Status(Code::kInvalidArgument,
                  "\"" + std::string(name) +
                      "\" is no name for a flush policy: use lower-case letters, digits and '_', "
                      "and give a factory");
  }
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  const bool built_in =
      std::find(std::begin(kBuiltIn), std::end(kBuiltIn), name) != std::end(kBuiltIn);
  if (built_in || !registry.factories.emplace(name, std::move(factory)).second) {
    return Status(Code::kInvalidArgument, "there is a flush policy \"" + std::string(name) +
                                              "\" already: choose another name");
  }
  return {};
}

}  // namespace rgpu
