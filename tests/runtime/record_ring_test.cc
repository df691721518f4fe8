#include "runtime/record_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace rgpu {
namespace {

using wire::Handle;

struct Owned {
  uint64_t sequence = 0;
  std::vector<Handle> handles;
  std::vector<std::byte> immediates;

  // Contents that depend on the sequence, so that a mix-up shows.
  static Owned make(uint64_t sequence, size_t handles, size_t immediates_size_bytes) {
    Owned owned{sequence, std::vector<Handle>(handles), {}};
    std::iota(owned.handles.begin(), owned.handles.end(), sequence * 1000);
    owned.immediates.assign(immediates_size_bytes, static_cast<std::byte>(sequence));
    return owned;
  }
  RingRecord record() const {
    return {sequence, 16 + static_cast<uint32_t>(sequence % 7), static_cast<uint32_t>(sequence),
            handles, immediates};
  }
};

void expect_equal(const RingRecord& found, const Owned& expected) {
  const RingRecord record = expected.record();
  EXPECT_EQ(found.sequence, record.sequence);
  EXPECT_EQ(found.number, record.number);
  EXPECT_EQ(found.location, record.location);
  EXPECT_TRUE(std::equal(found.handles.begin(), found.handles.end(), record.handles.begin(),
                         record.handles.end()));
  EXPECT_TRUE(std::equal(found.immediates.begin(), found.immediates.end(),
                         record.immediates.begin(), record.immediates.end()));
}

TEST(RecordRing, IsEmptyAtFirst) {
  RecordRing ring(1024);
  RingRecord record;
  EXPECT_FALSE(ring.front(record));
}

TEST(RecordRing, FrontStaysUntilPopped) {
  RecordRing ring(1024);
  const Owned first = Owned::make(1, 3, 5);
  const Owned second = Owned::make(2, 0, 0);
  ASSERT_TRUE(ring.try_append(first.record()));
  ASSERT_TRUE(ring.try_append(second.record()));
  RingRecord record;
  for (int look = 0; look < 2; ++look) {
    ASSERT_TRUE(ring.front(record));
    expect_equal(record, first);
  }
  ring.pop();
  ASSERT_TRUE(ring.front(record));
  expect_equal(record, second);
  ring.pop();
  EXPECT_FALSE(ring.front(record));
}

TEST(RecordRing, RoomComesBackOnRelease) {
  RecordRing ring(64);
  const Owned owned = Owned::make(1, 1, 0);  // 32 bytes.
  ASSERT_TRUE(ring.try_append(owned.record()));
  ASSERT_TRUE(ring.try_append(owned.record()));
  ASSERT_FALSE(ring.try_append(owned.record()));
  RingRecord record;
  ASSERT_TRUE(ring.front(record));
  ring.pop();
  EXPECT_FALSE(ring.try_append(owned.record()));
  ring.release();
  EXPECT_TRUE(ring.try_append(owned.record()));
}

TEST(RecordRing, TheLargestRecordFitsWhereverTheRingStands) {
  for (size_t before = 0; before < 40; ++before) {
    RecordRing ring(1024);
    RingRecord record;
    for (size_t index = 0; index < before; ++index) {
      ASSERT_TRUE(ring.try_append(Owned::make(index, 0, 0).record()));
      ASSERT_TRUE(ring.front(record));
      ring.pop();
      ring.release();
    }
    const Owned largest = Owned::make(99, (1024 / 2 - 24) / 8, 0);
    ASSERT_EQ(RecordRing::record_size_bytes(largest.record()), ring.record_size_bytes_max());
    ASSERT_TRUE(ring.try_append(largest.record()));
    ASSERT_TRUE(ring.front(record));
    expect_equal(record, largest);
  }
}

TEST(RecordRing, AForeachRecordOf5000HandlesFitsTheDefaultRing) {
  RecordRing ring(1u << 20);
  const Owned foreach = Owned::make(1, 5000, 5000);
  ASSERT_LE(RecordRing::record_size_bytes(foreach.record()), ring.record_size_bytes_max());
  EXPECT_TRUE(ring.try_append(foreach.record()));
}

TEST(RecordRing, KeepsOrderAndContentsOverManyRounds) {
  RecordRing ring(512);
  uint64_t appended = 0;
  uint64_t popped = 0;
  const auto make = [](uint64_t sequence) {
    return Owned::make(sequence, sequence % 5, sequence % 13);
  };
  while (popped < 5000) {
    while (ring.try_append(make(appended).record())) ++appended;
    RingRecord record;
    for (uint64_t take = 1 + popped % 4; take > 0 && ring.front(record); --take) {
      expect_equal(record, make(popped++));
      ring.pop();
    }
    ring.release();
  }
}

TEST(RecordRing, OneThreadAppendsWhileAnotherDrains) {
  constexpr uint64_t kRecords = 20000;
  RecordRing ring(4096);
  const auto make = [](uint64_t sequence) {
    return Owned::make(sequence, sequence % 9, sequence % 17);
  };
  std::thread producer([&] {
    for (uint64_t sequence = 0; sequence < kRecords; ++sequence) {
      const Owned owned = make(sequence);
      while (!ring.try_append(owned.record())) std::this_thread::yield();
    }
  });
  for (uint64_t sequence = 0; sequence < kRecords; ++sequence) {
    RingRecord record;
    while (!ring.front(record)) std::this_thread::yield();
    expect_equal(record, make(sequence));
    ring.pop();
    ring.release();
  }
  producer.join();
}

}  // namespace
}  // namespace rgpu
