// Events and streams as the engine runs them: what waits for what, and what a reply tells.

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;

class Events : public EngineFixture {
 protected:
  static constexpr int64_t kSide = 700;
  static constexpr uint64_t kSizeBytes = uint64_t{kSide} * kSide * 4;

  // A template that takes a while, so that what need not wait for it comes earlier.
  uint32_t define_long() {
    return batch.define(op("aten::mm", "", {tensor_arg({kSide, kSide}), tensor_arg({kSide, kSide})},
                           {new_output({kSide, kSide})}));
  }
  // Keeps the stream busy for a while.
  void occupy(Handle operand = 100) {
    for (Handle out = 200; out < 210; ++out) batch.record(mm, {operand, operand, out});
  }
  BatchBuilder& record_event(Handle event) { return batch.command(Command::kRecordEvent, {event}); }
  BatchBuilder& wait_event(Handle event) { return batch.command(Command::kWaitEvent, {event}); }
  BatchBuilder& query_event(Handle event, uint64_t request) {
    return batch.command(Command::kQueryEvent, {event}, Bytes().add(request));
  }
  int64_t time_of(uint64_t request) {
    const wire::Reply reply = sink.take(request).reply;
    EXPECT_EQ(reply.values.size(), 1u);
    return reply.values.empty() ? 0 : reply.values[0].integer;
  }
  // Streams 0 and 1 are in use from here on.
  void use_two_streams() {
    mm = define_long();
    batch.allocate(100, kSizeBytes).stream(1).allocate(101, kSizeBytes).sync(99);
    apply();
    (void)sink.take(99);
  }
  uint32_t mm = 0;
};

TEST_F(Events, AReachedEventTellsTheSameTimeToEverybody) {
  record_event(1);
  apply();
  query_event(1, 10);
  query_event(1, 11);
  apply();
  const int64_t time = time_of(10);
  EXPECT_GT(time, 0);
  EXPECT_EQ(time_of(11), time);
}

TEST_F(Events, StreamsOverlapUnlessToldOtherwise) {
  use_two_streams();
  occupy();
  record_event(1).stream(1);
  record_event(2);
  query_event(1, 10);
  query_event(2, 11);
  apply();
  EXPECT_LT(time_of(11), time_of(10));
}

TEST_F(Events, AStreamRunsOnceTheEventItWaitsForIsReached) {
  use_two_streams();
  occupy();
  record_event(1).stream(1);
  wait_event(1);
  record_event(2);
  query_event(1, 10);
  query_event(2, 11);
  apply();
  EXPECT_GE(time_of(11), time_of(10));
}

TEST_F(Events, NobodyWaitsForWhatComesAfterTheEvent) {
  use_two_streams();
  record_event(1);
  occupy();
  record_event(3).stream(1);
  wait_event(1);
  record_event(2);
  query_event(2, 11);
  query_event(3, 12);
  apply();
  EXPECT_LT(time_of(11), time_of(12));
}

TEST_F(Events, WaitingForAnEventIsForItsLastRecording) {
  use_two_streams();
  record_event(1);
  occupy();
  record_event(1).stream(1);
  wait_event(1);
  record_event(2);
  query_event(1, 10);
  query_event(2, 11);
  apply();
  EXPECT_GE(time_of(11), time_of(10));
}

TEST_F(Events, OneStreamsSyncDoesNotWaitForAnother) {
  use_two_streams();
  occupy();
  record_event(1).stream(1);
  batch.command(Command::kSyncStream, {}, Bytes().add(uint64_t{12}));
  query_event(1, 10);
  apply();
  (void)sink.take(12);
  record_event(2);
  query_event(2, 11);
  apply(1);
  EXPECT_LT(time_of(11), time_of(10));
}

TEST_F(Events, AFreedEventStillHoldsBackWhoWaits) {
  use_two_streams();
  occupy();
  record_event(1);
  query_event(1, 10).stream(1);
  wait_event(1).free(1);
  record_event(2);
  query_event(2, 11);
  apply();
  EXPECT_GE(time_of(11), time_of(10));
}

TEST_F(Events, AStorageOfOneStreamIsUsedOnAnotherAndFreed) {
  use_two_streams();
  std::vector<float> identity(kSide * kSide, 0.0F);
  for (size_t i = 0; i < kSide; ++i) identity[i * kSide + i] = 2.0F;
  batch.upload<float>(102, identity);
  occupy(102);
  batch.stream(1).record(mm, {209, 102, 300}).free(102).free(209);
  const std::vector<float> product = fetch<float>(300, kSide * kSide);
  EXPECT_EQ(product.front(), 8.0F);
  EXPECT_EQ(product.back(), 8.0F);
}

TEST_F(Events, ManyBytesInSeveralStreamsPassInOrder) {
  use_two_streams();
  const size_t count = (8u << 20) / sizeof(float);
  for (int i = 0; i < 20; ++i) {  // More than may be queued.
    batch.upload<float>(static_cast<Handle>(400 + i), std::vector<float>(count, float(i)));
    apply(static_cast<uint32_t>(i % 2));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(fetch<float>(static_cast<Handle>(400 + i), count).back(), float(i));
  }
}

TEST_F(Events, AHandleIsAnEventOrAStorage) {
  batch.allocate(1, 4);
  wait_event(1);
  apply();
  expect_ended("handle 1 is no event");
}

TEST_F(Events, AnEventHasNoBytes) {
  record_event(1);
  batch.fetch(1, 10, 4);
  apply();
  expect_ended("handle 1 is an event");
}

TEST_F(Events, AnUnknownEventEndsTheSession) {
  query_event(5, 10);
  apply();
  expect_ended("unknown handle 5");
}

}  // namespace
}  // namespace rgpu::server::testing
