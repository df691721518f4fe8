// A CommandQueue and its Drain on one thread: what is issued, and what the batches then hold.
#include "runtime/drain.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/runtime/scripted_server.h"

namespace rgpu {
namespace {

using testing::decode_batch;
using testing::make_template;
using testing::ReceivedBatch;
using testing::ReceivedRecord;
using wire::Command;
using Outcome = CommandQueue::Outcome;

constexpr uint32_t number(Command command) { return static_cast<uint32_t>(command); }

class DrainTest : public ::testing::Test {
 protected:
  void open(uint32_t batch_size_bytes_max = 256 << 10, uint32_t ring_size_bytes = 1 << 20) {
    SessionOptions options;
    options.ring_size_bytes = ring_size_bytes;
    queue_ = std::make_unique<CommandQueue>(options, *make_flush_policy("sync"));
    drain_ = std::make_unique<Drain>(*queue_, batch_size_bytes_max);
  }
  Outcome append(uint32_t stream, uint32_t record_number, std::vector<Handle> handles,
                 std::vector<uint64_t> words = {}) {
    const Record record{record_number, 0, handles, std::as_bytes(std::span(words))};
    return queue_->try_append(stream, record, nullptr);
  }
  void allocate(uint32_t stream, Handle handle) {
    ASSERT_EQ(append(stream, number(Command::kAllocate), {handle}, {64}), Outcome::kAppended);
  }
  void upload(Handle handle, uint64_t size_bytes) {
    Payload payload{std::span(zeros_).first(size_bytes), nullptr};
    const std::vector<uint64_t> words{size_bytes, 0, size_bytes};
    const Record record{number(Command::kUpload), 0, std::span(&handle, 1),
                        std::as_bytes(std::span(words))};
    ASSERT_EQ(queue_->try_append(0, record, &payload), Outcome::kAppended);
  }
  void free(Handle handle) { (void)queue_->free(handle); }
  void define(const std::string& name) {
    const Result<uint32_t> defined = queue_->define_template(make_template(name, 1));
    ASSERT_TRUE(defined);
    last_template_ = *defined;
  }

  ReceivedBatch drain(uint32_t records_max = 0) {
    drain_->fill(batch_, records_max);
    ReceivedBatch received = decode_batch(batch_.encoder.finish(), templates_);
    received.header.stream = batch_.stream;
    return received;
  }
  // "a1" allocate, "f1" free, "s3" stream, "u1" upload, "F" forget, "t16:1" a template's record.
  static std::string text(const ReceivedBatch& batch) {
    std::string line;
    for (const ReceivedRecord& record : batch.records) {
      if (!line.empty()) line += ' ';
      if (record.is(Command::kForgetTemplates)) {
        line += 'F';
      } else if (record.is(Command::kStream)) {
        uint32_t stream = 0;
        std::memcpy(&stream, record.immediates.data(), sizeof(stream));
        line += 's' + std::to_string(stream);
      } else {
        if (record.is(Command::kAllocate)) line += 'a';
        if (record.is(Command::kFree)) line += 'f';
        if (record.is(Command::kUpload)) line += 'u';
        if (record.number >= wire::kFirstTemplate) {
          line += 't' + std::to_string(record.number) + ':';
        }
        line += std::to_string(record.handles.at(0));
      }
    }
    return line;
  }

  std::vector<std::byte> zeros_ = std::vector<std::byte>(1000);
  std::unique_ptr<CommandQueue> queue_;
  std::unique_ptr<Drain> drain_;
  OutgoingBatch batch_;
  std::vector<wire::OpTemplate> templates_;
  uint32_t last_template_ = 0;
};

TEST_F(DrainTest, AnEmptyQueueGivesAnEmptyBatch) {
  open();
  drain_->fill(batch_, 0);
  EXPECT_TRUE(batch_.empty());
}

TEST_F(DrainTest, StreamsInterleaveInSessionOrder) {
  open();
  allocate(3, 1);
  allocate(3, 2);
  allocate(0, 3);
  allocate(7, 4);
  allocate(3, 5);
  const ReceivedBatch batch = drain();
  EXPECT_EQ(batch.header.stream, 3u);
  EXPECT_EQ(text(batch), "a1 a2 s0 a3 s7 a4 s3 a5");
  EXPECT_EQ(queue_->flush_state().pending_records, 0u);
  EXPECT_EQ(queue_->flush_state().pending_size_bytes, 0u);
}

TEST_F(DrainTest, EachBatchNamesItsOwnFirstStream) {
  open();
  allocate(3, 1);
  allocate(5, 2);
  allocate(5, 3);
  EXPECT_EQ(text(drain(1)), "a1");
  const ReceivedBatch batch = drain();
  EXPECT_EQ(batch.header.stream, 5u);
  EXPECT_EQ(text(batch), "a2 a3");
}

TEST_F(DrainTest, AFreeStandsBetweenTheRecordsBeforeAndAfterIt) {
  open();
  allocate(0, 1);
  free(9);
  allocate(1, 2);
  free(1);
  free(2);
  EXPECT_EQ(text(drain()), "a1 f9 s1 a2 f1 f2");
}

TEST_F(DrainTest, AFreeOfALaterBatchWaitsForItsRecords) {
  open();
  allocate(0, 1);
  allocate(0, 2);
  free(1);
  allocate(0, 3);
  free(3);
  EXPECT_EQ(text(drain(1)), "a1");
  EXPECT_EQ(text(drain(1)), "a2 f1");
  free(2);
  EXPECT_EQ(text(drain()), "a3 f3 f2");
  EXPECT_EQ(queue_->frees().size(), 0u);
}

TEST_F(DrainTest, FreesAloneMakeABatch) {
  open();
  free(4);
  free(5);
  EXPECT_EQ(text(drain()), "f4 f5");
}

TEST_F(DrainTest, AFullBatchKeepsItsOrderWithFrees) {
  open(/*batch_size_bytes_max=*/1);
  allocate(0, 1);
  free(1);
  free(2);
  allocate(0, 3);
  std::string all;
  for (int batches = 0; batches < 4; ++batches) all += text(drain()) + "|";
  EXPECT_EQ(all, "a1|f1|f2|a3|");
}

TEST_F(DrainTest, TemplatesComeBeforeTheirRecords) {
  open();
  allocate(0, 1);
  define("aten::relu");
  append(0, last_template_, {1});
  define("aten::neg");
  append(0, last_template_, {1});
  const ReceivedBatch batch = drain();
  ASSERT_EQ(batch.templates.size(), 2u);
  EXPECT_EQ(batch.templates[1].name, "aten::neg");
  EXPECT_EQ(text(batch), "a1 t16:1 t17:1");
}

TEST_F(DrainTest, ATemplateMayComeBeforeTheBatchOfItsRecords) {
  open();
  allocate(0, 1);
  define("aten::relu");
  append(0, last_template_, {1});
  EXPECT_EQ(text(drain(1)), "a1");
  EXPECT_EQ(text(drain(1)), "t16:1");
}

TEST_F(DrainTest, TemplatesThatDoNotFitHoldTheirRecordsBack) {
  open(/*batch_size_bytes_max=*/1);
  define("aten::relu");
  append(0, last_template_, {1});
  define("aten::neg");
  append(0, last_template_, {1});
  const ReceivedBatch first = drain();
  EXPECT_EQ(first.templates.size(), 1u);
  EXPECT_EQ(text(first), "t16:1");
  const ReceivedBatch second = drain();
  EXPECT_EQ(second.templates.size(), 1u);
  EXPECT_EQ(text(second), "t17:1");
}

TEST_F(DrainTest, ForgettingEndsTheBatchAndNumberingStartsAnew) {
  open();
  define("aten::relu");
  append(0, last_template_, {1});
  append(0, number(Command::kForgetTemplates), {});
  define("aten::neg");
  EXPECT_EQ(last_template_, wire::kFirstTemplate);
  append(0, last_template_, {2});
  const ReceivedBatch before = drain();
  ASSERT_EQ(before.templates.size(), 1u);
  EXPECT_EQ(before.templates[0].name, "aten::relu");
  EXPECT_EQ(text(before), "t16:1 F");
  const ReceivedBatch after = drain();
  ASSERT_EQ(after.templates.size(), 1u);
  EXPECT_EQ(after.templates[0].name, "aten::neg");
  EXPECT_EQ(text(after), "t16:2");
}

TEST_F(DrainTest, ForgettingTwiceInARow) {
  open();
  define("aten::relu");
  append(0, number(Command::kForgetTemplates), {});
  append(0, number(Command::kForgetTemplates), {});
  free(1);
  define("aten::neg");
  append(0, last_template_, {2});
  EXPECT_EQ(text(drain()), "F");
  EXPECT_EQ(text(drain()), "F");
  EXPECT_EQ(text(drain()), "f1 t16:2");
}

TEST_F(DrainTest, TemplatesAreBounded) {
  open();
  const std::vector<std::byte> encoded = make_template("aten::relu", 1);
  for (uint32_t index = 0; index < limits::kTemplatesMax; ++index) {
    ASSERT_EQ(*queue_->define_template(encoded), wire::kFirstTemplate + index);
  }
  EXPECT_EQ(queue_->define_template(encoded).error().code(), Code::kExhausted);
  append(0, number(Command::kForgetTemplates), {});
  EXPECT_EQ(*queue_->define_template(encoded), wire::kFirstTemplate);
}

TEST_F(DrainTest, UploadsKeepTheirSegmentsInOrder) {
  open();
  upload(1, 10);
  allocate(0, 2);
  upload(3, 30);
  EXPECT_EQ(text(drain(1)), "u1");
  ASSERT_EQ(batch_.payloads.size(), 1u);
  EXPECT_EQ(batch_.payload_size_bytes, 10u);
  const ReceivedBatch batch = drain();
  EXPECT_EQ(text(batch), "a2 u3");
  ASSERT_EQ(batch.segment_sizes.size(), 1u);
  EXPECT_EQ(batch.segment_sizes[0], 30u);
}

TEST_F(DrainTest, SegmentsOfABatchAreBounded) {
  open();
  for (uint32_t index = 0; index <= limits::kSegmentsMax; ++index) upload(1 + index, 1);
  EXPECT_EQ(drain().segment_sizes.size(), limits::kSegmentsMax);
  EXPECT_EQ(drain().segment_sizes.size(), 1u);
}

TEST_F(DrainTest, ARingThatIsFullTakesNoMoreUntilItIsDrained) {
  open(256 << 10, /*ring_size_bytes=*/128);
  allocate(0, 1);
  allocate(0, 2);
  allocate(0, 3);
  ASSERT_EQ(append(0, number(Command::kAllocate), {4}, {64}), Outcome::kFull);
  EXPECT_EQ(text(drain()), "a1 a2 a3");
  allocate(0, 4);
  EXPECT_EQ(text(drain()), "a4");
}

TEST_F(DrainTest, WhatNeverFitsIsRefusedWithItsSizes) {
  open(256 << 10, /*ring_size_bytes=*/128);
  const std::vector<Handle> handles(6, 1);
  const Record record{wire::kFirstTemplate, 0, handles, {}};
  ASSERT_EQ(queue_->try_append(0, record, nullptr), Outcome::kRefused);
  const Status status = queue_->check(0, record);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("6 handles"), std::string::npos);
  ASSERT_EQ(append(limits::kStreamsMax, number(Command::kAllocate), {1}, {64}), Outcome::kRefused);
}

TEST_F(DrainTest, AWaiterIsOneUntilItsRecordsAreDrained) {
  open();
  EXPECT_FALSE(queue_->request_flush());
  allocate(0, 1);
  EXPECT_FALSE(queue_->flush_state().waiter);
  EXPECT_TRUE(queue_->request_flush());
  EXPECT_TRUE(queue_->flush_state().waiter);
  EXPECT_FALSE(queue_->try_park());
  (void)drain();
  allocate(0, 2);
  EXPECT_FALSE(queue_->flush_state().waiter);
}

TEST_F(DrainTest, AnAppendWakesAParkedThreadOnceWhenThePolicySaysSo) {
  open();
  ASSERT_TRUE(queue_->try_park());
  EXPECT_EQ(append(0, number(Command::kAllocate), {1}, {64}), Outcome::kAppended);
  queue_->set_policy(*make_flush_policy("adaptive"));
  EXPECT_EQ(append(0, number(Command::kAllocate), {2}, {64}), Outcome::kAppendedWake);
  EXPECT_EQ(append(0, number(Command::kAllocate), {3}, {64}), Outcome::kAppended);
  EXPECT_FALSE(queue_->try_park());
}

TEST_F(DrainTest, AFreeWakesOnlyWhenAskedToOrWhenThereAreMany) {
  open();
  EXPECT_FALSE(queue_->free(1));
  EXPECT_FALSE(queue_->frees().arm_wake());
  (void)drain();
  ASSERT_TRUE(queue_->frees().arm_wake());
  EXPECT_TRUE(queue_->free(2));
  for (uint64_t count = 2; count < FreeList::kLong; ++count) EXPECT_FALSE(queue_->free(3));
  EXPECT_TRUE(queue_->free(4));
  EXPECT_FALSE(queue_->free(5));
}

}  // namespace
}  // namespace rgpu
