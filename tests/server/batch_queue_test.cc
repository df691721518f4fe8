#include "server/batch_queue.h"

#include <gtest/gtest.h>

#include <thread>

#include "server/work_clock.h"

namespace rgpu::server {
namespace {

std::unique_ptr<IncomingBatch> batch(uint64_t sequence, size_t size_bytes) {
  auto made = std::make_unique<IncomingBatch>();
  made->sequence = sequence;
  made->size_bytes = size_bytes;
  return made;
}

TEST(BatchQueue, KeepsOrder) {
  BatchQueue queue({});
  queue.on_room([] {});
  queue.push(batch(1, 10));
  queue.push(batch(2, 10));
  EXPECT_EQ(queue.pop()->sequence, 1u);
  EXPECT_EQ(queue.pop()->sequence, 2u);
}

TEST(BatchQueue, IsFullByBytesUntilTheBatchUnderWayIsDone) {
  BatchQueue queue({.size_bytes_max = 100, .batches_max = 10});
  int room = 0;
  queue.on_room([&] { ++room; });
  queue.push(batch(1, 100));
  queue.push(batch(2, 1));
  EXPECT_TRUE(queue.full());
  (void)queue.pop();  // Batch 1 is under way: its bytes still count.
  EXPECT_TRUE(queue.full());
  EXPECT_EQ(room, 0);
  (void)queue.pop();
  EXPECT_FALSE(queue.full());
  EXPECT_EQ(room, 1);
}

TEST(BatchQueue, IsFullByCount) {
  BatchQueue queue({.size_bytes_max = 100, .batches_max = 2});
  int room = 0;
  queue.on_room([&] { ++room; });
  queue.push(batch(1, 1));
  EXPECT_FALSE(queue.full());
  queue.push(batch(2, 1));
  EXPECT_TRUE(queue.full());
  (void)queue.pop();
  EXPECT_FALSE(queue.full());
  EXPECT_EQ(room, 1);
}

TEST(BatchQueue, CloseEndsTheWait) {
  BatchQueue queue({});
  std::thread popper([&] { EXPECT_EQ(queue.pop(), nullptr); });
  queue.close();
  popper.join();
}

TEST(WorkClock, CountsNothingBeforeTheFirstRun) {
  WorkClock clock;
  EXPECT_EQ(clock.times().busy_ns, 0u);
  EXPECT_EQ(clock.times().idle_ns, 0u);
}

TEST(WorkClock, BusyWhileAnyoneWorks) {
  WorkClock clock;
  clock.begin();
  clock.begin();
  clock.end();
  const WorkClock::Times during = clock.times();
  EXPECT_EQ(during.idle_ns, 0u);
  while (clock.times().busy_ns == during.busy_ns) {
  }
  clock.end();
  const WorkClock::Times after = clock.times();
  while (clock.times().idle_ns <= after.idle_ns) {
  }
  EXPECT_EQ(clock.times().busy_ns, after.busy_ns);
}

}  // namespace
}  // namespace rgpu::server
