// Work is held back by gates, never by sleeping: first it is seen not to be done, then it is let
// go.

#include "server/cuda/emulated/streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

constexpr uint32_t kLegacy = 0;
constexpr uint32_t kA = 1;
constexpr uint32_t kB = 2;

class StreamsTest : public testing::Test {
 protected:
  // Appends `name` to the order in which work was done.
  Streams::Work note(char name) {
    return [this, name] {
      const std::lock_guard lock(mutex_);
      order_ += name;
    };
  }
  void drain() {
    std::promise<void> done;
    streams_.after_all([&] { done.set_value(); });
    done.get_future().wait();
  }
  // Until all of a stream that nothing holds is done.
  void drain(uint32_t stream) {
    std::promise<void> done;
    streams_.submit(stream, [&] { done.set_value(); });
    done.get_future().wait();
  }
  std::string order() {
    const std::lock_guard lock(mutex_);
    return order_;
  }

  std::mutex mutex_;
  std::string order_;
  Streams streams_;
};

TEST_F(StreamsTest, OneStreamIsInOrder) {
  for (char name = 'a'; name <= 'z'; ++name) streams_.submit(kA, note(name));
  drain();
  EXPECT_EQ(order(), "abcdefghijklmnopqrstuvwxyz");
}

TEST_F(StreamsTest, AGateHoldsItsStreamAloneUntilItIsOpened) {
  streams_.create(kA, /*non_blocking=*/true);
  streams_.create(kB, /*non_blocking=*/true);
  std::promise<void> reached;
  streams_.gate(kA, 7, [&] { reached.set_value(); });
  streams_.submit(kA, note('a'));
  reached.get_future().wait();
  streams_.submit(kB, note('b'));
  drain(kB);
  EXPECT_EQ(order(), "b");
  streams_.open_gate(7);
  drain(kA);
  EXPECT_EQ(order(), "ba");
}

TEST_F(StreamsTest, AGateMayBeOpenedBeforeItsStreamGetsThere) {
  streams_.gate(kA, 1, [] {});
  streams_.gate(kA, 2, [] {});
  streams_.submit(kA, note('a'));
  streams_.open_gate(2);
  streams_.open_gate(1);
  drain();
  EXPECT_EQ(order(), "a");
}

TEST_F(StreamsTest, TheLegacyStreamAndBlockingOnesWaitForEachOther) {
  streams_.create(kA, /*non_blocking=*/false);
  streams_.create(kB, /*non_blocking=*/true);
  streams_.gate(kA, 1, [] {});
  streams_.submit(kA, note('a'));
  streams_.submit(kLegacy, note('l'));
  streams_.submit(kA, note('c'));
  streams_.submit(kB, note('b'));
  drain(kB);
  EXPECT_EQ(order(), "b");
  streams_.open_gate(1);
  drain();
  EXPECT_EQ(order(), "balc");
}

TEST_F(StreamsTest, AStreamOfAnotherDeviceDoesNotWaitForTheLegacyOne) {
  const uint32_t other = wire::stream_of(1, 1);
  streams_.gate(kLegacy, 1, [] {});
  streams_.submit(other, note('o'));
  drain(other);
  EXPECT_EQ(order(), "o");
  streams_.open_gate(1);
}

TEST_F(StreamsTest, WaitForComesAfterTheMarkedPiece) {
  streams_.create(kA, true);
  streams_.create(kB, true);
  streams_.gate(kA, 1, [] {});
  const Streams::Mark mark = streams_.submit(kA, note('a'));
  streams_.wait_for(kB, mark);
  streams_.submit(kB, note('b'));
  streams_.open_gate(1);
  drain();
  EXPECT_EQ(order(), "ab");
}

TEST_F(StreamsTest, AFenceIsBetweenAllBeforeAndAllAfter) {
  streams_.create(kA, true);
  streams_.create(kB, true);
  streams_.gate(kA, 1, [] {});
  streams_.submit(kA, note('a'));
  streams_.fence(0, note('f'));
  EXPECT_TRUE(streams_.fenced(0));
  EXPECT_FALSE(streams_.fenced(1));
  streams_.submit(kB, note('b'));
  EXPECT_EQ(order(), "");
  streams_.open_gate(1);
  drain();
  EXPECT_EQ(order(), "afb");
  EXPECT_FALSE(streams_.fenced(0));
}

TEST_F(StreamsTest, AFenceWithNothingBeforeItRunsAtOnce) {
  streams_.fence(0, note('f'));
  EXPECT_EQ(order(), "f");
}

TEST_F(StreamsTest, AfterRunsAtOnceWhenThePieceIsDone) {
  const Streams::Mark mark = streams_.submit(kA, note('a'));
  drain();
  streams_.after(mark, note('x'));
  EXPECT_EQ(order(), "ax");
}

TEST_F(StreamsTest, AfterIsNotHeldByWhatComesAfterLaterPieces) {
  streams_.gate(kA, 1, [] {});
  const Streams::Mark first = streams_.submit(kA, note('a'));
  streams_.gate(kA, 2, [] {});
  const Streams::Mark second = streams_.submit(kA, note('b'));
  std::promise<void> noted;
  streams_.after(second, note('y'));
  streams_.after(first, [&] {
    note('x')();
    noted.set_value();
  });
  EXPECT_EQ(order(), "");
  streams_.open_gate(1);
  noted.get_future().wait();
  EXPECT_EQ(order(), "ax");
  streams_.open_gate(2);
  drain();
  EXPECT_EQ(order(), "axby");
}

TEST_F(StreamsTest, WhatHoldsOnToTooManyBytesWaitsForRoom) {
  std::promise<void> let_go;
  streams_.submit(kA, [&] { let_go.get_future().wait(); }, Streams::kQueuedSizeBytesMax);
  std::future<void> second =
      std::async(std::launch::async, [&] { streams_.submit(kB, note('b'), 1); });
  EXPECT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(order(), "");
  let_go.set_value();
  second.wait();
  drain();
  EXPECT_EQ(order(), "b");
}

TEST_F(StreamsTest, TheEndDropsWhatHasNotBegun) {
  std::atomic<int> done{0};
  {
    Streams streams;
    streams.gate(kA, 1, [] {});
    for (int i = 0; i < 100; ++i) streams.submit(kA, [&] { ++done; });
  }
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace rgpu::server::cuda
