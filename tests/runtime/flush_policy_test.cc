// Policies are asked with states made by hand; no thread, no clock.
#include "runtime/flush_policy.h"

#include <gtest/gtest.h>

#include "records_policy.h"
#include "tests/runtime/session_fixture.h"

namespace rgpu {
namespace {

using std::chrono::microseconds;
using Action = FlushDecision::Action;

std::unique_ptr<FlushPolicy> make(std::string_view name) {
  Result<std::unique_ptr<FlushPolicy>> policy = make_flush_policy(name);
  if (!policy) throw std::runtime_error(policy.error().message());
  return *std::move(policy);
}

FlushState pending(uint32_t records, uint64_t size_bytes = 0) {
  FlushState state;
  state.pending_records = records;
  state.pending_size_bytes = size_bytes;
  return state;
}

FlushState with_waiter(FlushState state) {
  state.waiter = true;
  return state;
}

TEST(FlushPolicy, NamesRoundTrip) {
  for (const char* name : {"per_op", "sync", "bytes=4096", "deadline=250", "adaptive"}) {
    EXPECT_EQ(make(name)->name(), name);
  }
}

TEST(FlushPolicy, AWrongNameIsRefusedWithTheValidOnes) {
  for (const char* name :
       {"", "Adaptive", "bytes", "bytes=", "bytes=0", "bytes=4k", "bytes=-1", "deadline=0",
        "deadline=1ms", "deadline=99999999", "sync ", "bytes=99999999999999999999999"}) {
    const Result<std::unique_ptr<FlushPolicy>> policy = make_flush_policy(name);
    ASSERT_FALSE(policy) << name;
    EXPECT_EQ(policy.error().code(), Code::kInvalidArgument);
    EXPECT_NE(policy.error().message().find("adaptive"), std::string::npos);
  }
}

TEST(FlushPolicy, EveryOneSendsForAWaiter) {
  for (const char* name : {"per_op", "sync", "bytes=4096", "deadline=250", "adaptive"}) {
    FlushState state = with_waiter(pending(1, 32));
    state.batches_in_flight = 100;
    EXPECT_TRUE(make(name)->should_wake(state)) << name;
    EXPECT_EQ(make(name)->decide(state).action, Action::kSend) << name;
  }
}

TEST(FlushPolicy, PerOpSendsEachRecordByItself) {
  FlushState state = pending(5, 500);
  state.batches_in_flight = 100;
  EXPECT_TRUE(make("per_op")->should_wake(state));
  const FlushDecision decision = make("per_op")->decide(state);
  EXPECT_EQ(decision.action, Action::kSend);
  EXPECT_EQ(decision.records_max, 1u);
}

TEST(FlushPolicy, SyncKeepsEverythingBack) {
  const FlushState state = pending(100000, 1 << 30);
  EXPECT_FALSE(make("sync")->should_wake(state));
  EXPECT_EQ(make("sync")->decide(state).action, Action::kPark);
}

TEST(FlushPolicy, BytesSendsFromItsSizeOn) {
  EXPECT_FALSE(make("bytes=100")->should_wake(pending(9, 99)));
  EXPECT_EQ(make("bytes=100")->decide(pending(9, 99)).action, Action::kPark);
  EXPECT_TRUE(make("bytes=100")->should_wake(pending(1, 100)));
  EXPECT_EQ(make("bytes=100")->decide(pending(1, 100)).action, Action::kSend);
}

TEST(FlushPolicy, DeadlineWaitsForTheRestOfIt) {
  const auto policy = make("deadline=250");
  FlushState state = pending(3, 1 << 20);
  EXPECT_TRUE(policy->should_wake(state));
  state.oldest_age_ns = 100'000;
  EXPECT_EQ(policy->decide(state).action, Action::kAfter);
  EXPECT_EQ(policy->decide(state).delay, microseconds(150));
  state.oldest_age_ns = 250'000;
  EXPECT_EQ(policy->decide(state).action, Action::kSend);
}

TEST(FlushPolicy, AdaptiveSendsAtOnceWhenAThreadWaits) {
  FlushState state = pending(1, 32);
  state.waiter = true;
  EXPECT_EQ(make("adaptive")->decide(state).action, Action::kSend);
}

TEST(FlushPolicy, AdaptiveWaitsLongerTheBusierThePeerIs) {
  const auto policy = make("adaptive");
  std::chrono::nanoseconds before{0};
  for (const uint32_t in_flight : {0u, 1u, 2u}) {
    FlushState state = pending(1, 32);
    state.batches_in_flight = in_flight;
    const FlushDecision decision = policy->decide(state);
    ASSERT_EQ(decision.action, Action::kAfter);
    EXPECT_GT(decision.delay, before);
    before = decision.delay;
    state.oldest_age_ns = decision.delay.count();
    EXPECT_EQ(policy->decide(state).action, Action::kSend);
  }
  EXPECT_LE(before, std::chrono::milliseconds(2));
}

TEST(FlushPolicy, AdaptiveDoesNotSleepThroughAFullBatch) {
  for (const uint32_t in_flight : {0u, 1u, 2u}) {
    FlushState state = pending(1, 32);
    state.batches_in_flight = in_flight;
    const FlushDecision decision = make("adaptive")->decide(state);
    ASSERT_GT(decision.size_bytes, 32u);
    state.pending_size_bytes = decision.size_bytes;
    EXPECT_EQ(make("adaptive")->decide(state).action, Action::kSend);
  }
}

TEST(FlushPolicy, AdaptiveSendsAFullBatchWhateverIsInFlight) {
  FlushState state = pending(1000, 16 << 10);
  state.batches_in_flight = 1000;
  EXPECT_EQ(make("adaptive")->decide(state).action, Action::kSend);
}

TEST(FlushPolicy, OnlyThoseThatSendByTheClockLinger) {
  EXPECT_EQ(make("sync")->linger().count(), 0);
  EXPECT_EQ(make("bytes=100")->linger().count(), 0);
  EXPECT_GT(make("adaptive")->linger().count(), 0);
}

// The example of docs/flush-policies.md.
TEST(FlushPolicy, ARegisteredOneIsKnownByItsName) {
  ASSERT_FALSE(make_flush_policy("records=3"));
  const Status registered = register_records_policy();
  ASSERT_TRUE(registered) << registered.message();
  EXPECT_EQ(make("records=3")->name(), "records=3");
  EXPECT_EQ(make("records=3")->decide(pending(2)).action, Action::kPark);
  EXPECT_EQ(make("records=3")->decide(pending(3)).action, Action::kSend);
  EXPECT_EQ(make_flush_policy("records=x").error().message(), "records=N needs a number above 0");
  EXPECT_FALSE(make_flush_policy("records"));
  EXPECT_NE(make_flush_policy("nothing").error().message().find("records"), std::string::npos);
}

TEST(FlushPolicy, ATakenOrStrangeNameIsNotRegistered) {
  const auto none = [](std::string_view) -> Result<std::unique_ptr<FlushPolicy>> {
    return std::unique_ptr<FlushPolicy>();
  };
  for (const char* name : {"sync", "bytes", "adaptive", "", "Mine", "a=b", "a b"}) {
    EXPECT_EQ(register_flush_policy(name, none).code(), Code::kInvalidArgument) << name;
  }
  EXPECT_FALSE(register_flush_policy("nobody", nullptr));
  ASSERT_TRUE(register_flush_policy("empty", none));
  EXPECT_FALSE(register_flush_policy("empty", none));
  EXPECT_FALSE(make_flush_policy("empty"));  // A factory that makes nothing.
}

class PolicyObjectTest : public testing::SessionTest {};

TEST_F(PolicyObjectTest, ASessionAsksTheObjectItWasGiven) {
  SessionOptions with_object = options();
  with_object.policy = std::make_shared<RecordsPolicy>(2);
  start(with_object);
  EXPECT_EQ(session_->flush_policy(), "records=2");
  ASSERT_TRUE(allocate(1));
  EXPECT_TRUE(server_.quiet());
  ASSERT_TRUE(allocate(2));
  EXPECT_EQ(server_.read_batch().records.size(), 2u);
  session_->set_flush_policy(std::make_shared<RecordsPolicy>(1));
  ASSERT_TRUE(allocate(3));
  EXPECT_EQ(server_.read_batch().records.size(), 1u);
}

// Sends when 200 bytes are pending, and waits for that without a look.
class DozingPolicy final : public FlushPolicy {
 public:
  std::string name() const override { return "dozing"; }
  bool should_wake(const FlushState&) noexcept override { return true; }
  FlushDecision decide(const FlushState& state) override {
    if (state.waiter || state.pending_size_bytes >= kSizeBytes) return {Action::kSend, {}};
    if (!waits_) asked.set_value();
    waits_ = true;
    return {Action::kAfter, std::chrono::hours(1), 0, kSizeBytes};
  }
  std::promise<void> asked;

 private:
  static constexpr uint64_t kSizeBytes = 200;
  bool waits_ = false;
};

TEST_F(PolicyObjectTest, APauseEndsWhenSoMuchIsPending) {
  SessionOptions with_object = options();
  const auto policy = std::make_shared<DozingPolicy>();
  with_object.policy = policy;
  start(with_object);
  ASSERT_TRUE(allocate(1));
  policy->asked.get_future().get();
  EXPECT_TRUE(server_.quiet());
  for (Handle handle = 2; handle <= 20; ++handle) ASSERT_TRUE(allocate(handle));
  EXPECT_GE(server_.read_batch().records.size(), 3u);
  EXPECT_LE(session_->stats().wakeups, 10u);  // Not one an append.
}

}  // namespace
}  // namespace rgpu
