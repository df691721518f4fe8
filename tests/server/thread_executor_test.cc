// Order within a stream, order across streams, and the bound.

#include "server/thread_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>

namespace rgpu::server {
namespace {

class Call final : public Run {
 public:
  Call(uint64_t run_id, uint32_t run_stream, std::function<void()> call) : call_(std::move(call)) {
    id = run_id;
    stream = run_stream;
  }
  void execute() override { call_(); }

 private:
  std::function<void()> call_;
};

class ThreadExecutorTest : public ::testing::Test {
 protected:
  void submit(uint32_t stream, std::function<void()> call, std::vector<Run::After> after = {}) {
    auto run = std::make_unique<Call>(++last_id, stream, std::move(call));
    run->after = std::move(after);
    executor.submit(std::move(run));
  }
  uint64_t last_id = 0;
  WorkClock clock;
  std::atomic<int> prepared = 0;
  ThreadExecutor executor{clock, [this] { ++prepared; }};
};

TEST_F(ThreadExecutorTest, OneStreamExecutesOnTheCallersThread) {
  std::thread::id thread;
  submit(3, [&] { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_EQ(prepared, 0);
}

TEST_F(ThreadExecutorTest, ASecondStreamRunsBesideTheFirst) {
  submit(0, [] {});
  std::latch started(2);  // Passes only if both runs are under way at once.
  submit(1, [&] { started.arrive_and_wait(); });
  submit(2, [&] { started.arrive_and_wait(); });
  executor.drain();
  EXPECT_EQ(prepared, 2);
}

TEST_F(ThreadExecutorTest, AStreamKeepsItsOrder) {
  submit(0, [] {});
  std::vector<int> order;
  for (int i = 0; i < 500; ++i) submit(1, [&order, i] { order.push_back(i); });
  executor.drain();
  ASSERT_EQ(order.size(), 500u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(ThreadExecutorTest, ARunWaitsForTheRunItNames) {
  submit(0, [] {});
  std::latch let_go(1);
  std::atomic<bool> first_done = false;
  bool seen = false;
  submit(1, [&] {
    let_go.wait();
    first_done = true;
  });
  submit(2, [&] { seen = first_done; }, {{1, last_id}});
  EXPECT_FALSE(first_done);
  let_go.count_down();
  executor.drain();
  EXPECT_TRUE(seen);
}

TEST_F(ThreadExecutorTest, StreamsThatShareAThreadWaitForEachOther) {
  submit(0, [] {});
  int value = 0;
  submit(1, [&] { value = 1; });
  for (uint32_t stream = 2; stream < 66; ++stream) submit(stream, [] {});  // A thread each.
  submit(66, [&] { value *= 5; }, {{1, 2}});
  submit(2, [&] { value += 2; }, {{66, last_id}});
  executor.drain();
  EXPECT_EQ(value, 7);
}

TEST_F(ThreadExecutorTest, TheDefaultStreamsOfTwoDevicesRunBesideEachOther) {
  submit(0, [] {});
  std::latch first_runs(1);
  std::latch second_ran(1);
  submit(64, [&] {
    first_runs.count_down();
    second_ran.wait();
  });
  first_runs.wait();
  submit(128, [&] { second_ran.count_down(); });
  executor.drain();
}

}  // namespace
}  // namespace rgpu::server
