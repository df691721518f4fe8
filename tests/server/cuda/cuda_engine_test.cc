// The engine over a driver of the test's own, which remembers what it was asked for.

#include "server/cuda/cuda_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "server/cuda/null_driver.h"
#include "tests/server/batch_builder.h"
#include "tests/server/incoming.h"
#include "tests/server/recording_sink.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;
using calls::Call;
using testing::BatchBuilder;
using testing::Bytes;
using testing::RecordingSink;
using wire::Command;

constexpr uint64_t kAddress = uint64_t{0x2000} << 32;

class CudaEngineTest : public ::testing::Test {
 protected:
  CudaEngineTest()
      : engine_({sink_, clock_},
                []() -> Result<std::unique_ptr<Driver>> { return make_null_driver(2); }) {
    wire::Hello hello;
    hello.cuda = wire::CudaHello{{kAddress}, uint64_t{1} << 40};
    EXPECT_TRUE(engine_.greet(hello).ok());
  }
  void apply(BatchBuilder& builder) {
    engine_.apply(testing::incoming(engine_, builder.finish(), ++sequence_));
  }
  // What the session ended of.
  std::string failure_of(BatchBuilder& builder) {
    apply(builder);
    const std::optional<Status> failure = sink_.failure();
    return failure ? failure->message() : "";
  }
  template <typename Struct>
  static Bytes call_bytes(const Struct& fields, size_t tail_size_bytes = 0) {
    Bytes bytes;
    bytes.add(calls::CallHeader{static_cast<uint32_t>(sizeof fields + tail_size_bytes)});
    bytes.add(fields);
    return bytes;
  }

  RecordingSink sink_;
  WorkClock clock_;
  CudaEngine engine_;
  uint64_t sequence_ = 0;
};

TEST_F(CudaEngineTest, TellsTheDevicesAndTheRange) {
  ASSERT_TRUE(engine_.info().cuda.has_value());
  EXPECT_EQ(engine_.info().cuda->devices.size(), 2u);
  EXPECT_EQ(engine_.info().cuda->address_base, kAddress);
}

TEST_F(CudaEngineTest, AnswersWithCodeMessageAndResults) {
  BatchBuilder builder;
  builder.record(calls::number(Call::kMemoryInfo), {}, call_bytes(calls::MemoryInfo{5, 1, 0}));
  apply(builder);
  const RecordingSink::Received received = sink_.take(5);
  ASSERT_EQ(received.reply.values.size(), 4u);
  EXPECT_EQ(received.reply.values[0].integer, 0);
  EXPECT_EQ(received.reply.values[1].text, "");
  EXPECT_GT(received.reply.values[3].integer, 0);
  EXPECT_FALSE(received.reply.failed);
}

TEST_F(CudaEngineTest, ARefusalIsToldWithTheRequestsOwnReply) {
  BatchBuilder builder;
  Bytes bytes = call_bytes(calls::GetGlobal{9, 1, 0}, 4);
  for (const char letter : {'n', 'a', 'm', 'e'}) bytes.add(letter);
  builder.record(calls::number(Call::kGetGlobal), {}, bytes);
  apply(builder);
  const RecordingSink::Received received = sink_.take(9);
  EXPECT_EQ(received.reply.values[0].integer, kNotFound);
  EXPECT_EQ(received.reply.values[1].text, "no variable name");
  EXPECT_TRUE(received.reply.failed);
}

TEST_F(CudaEngineTest, AFetchHasItsBytes) {
  BatchBuilder builder;
  builder.allocate(kAddress, 4096).fetch(kAddress, 3, 100);
  apply(builder);
  EXPECT_EQ(sink_.take(3).payload.size(), 100u);
}

TEST_F(CudaEngineTest, ABufferIsGoneOnceItWasUsed) {
  BatchBuilder builder;
  builder.upload_bytes(7, std::vector<std::byte>(16));
  const Bytes scatter = call_bytes(calls::Scatter{7, {kAddress, 16, 16}, {16, 1, 1}});
  builder.record(calls::number(Call::kScatter), {}, scatter);
  apply(builder);
  EXPECT_FALSE(sink_.failure());
  BatchBuilder again;
  again.record(calls::number(Call::kScatter), {}, scatter);
  EXPECT_NE(failure_of(again).find("unknown buffer 7"), std::string::npos);
}

TEST_F(CudaEngineTest, ABufferMayComeInParts) {
  BatchBuilder builder;
  builder.upload_part(7, std::vector<std::byte>(10), 16, 0);
  builder.upload_part(7, std::vector<std::byte>(6), 16, 10);
  builder.record(calls::number(Call::kScatter), {},
                 call_bytes(calls::Scatter{7, {kAddress, 16, 16}, {16, 1, 1}}));
  apply(builder);
  EXPECT_FALSE(sink_.failure());
}

TEST_F(CudaEngineTest, WhatACorrectClientCannotSendEndsTheSession) {
  BatchBuilder unknown;
  unknown.record(calls::number(Call::kEnd), {}, Bytes().add(calls::CallHeader{0}));
  EXPECT_NE(failure_of(unknown).find("unknown call"), std::string::npos);
}

TEST_F(CudaEngineTest, ACallOfAnotherLengthEndsTheSession) {
  BatchBuilder builder;
  builder.record(calls::number(Call::kOpenGate), {}, call_bytes(calls::DeviceId{0}));
  EXPECT_NE(failure_of(builder).find("cut short"), std::string::npos);
}

TEST_F(CudaEngineTest, AStreamOfNoDeviceEndsTheSession) {
  BatchBuilder builder;
  builder.stream(wire::stream_of(2, 0));
  EXPECT_NE(failure_of(builder).find("does not exist"), std::string::npos);
}

TEST_F(CudaEngineTest, ABoxThatOverflowsEndsTheSession) {
  calls::Gather gather;
  gather.request = 1;
  gather.source = {kAddress, 1, 1};
  gather.extent = {uint64_t{1} << 33, uint64_t{1} << 33, 4};
  BatchBuilder builder;
  builder.record(calls::number(Call::kGather), {}, call_bytes(gather));
  EXPECT_NE(failure_of(builder).find("over the limit"), std::string::npos);
}

TEST_F(CudaEngineTest, AnEventThatWasNeverRecordedEndsTheSession) {
  BatchBuilder builder;
  builder.command(Command::kWaitEvent, {5});
  EXPECT_NE(failure_of(builder).find("never recorded"), std::string::npos);
}

TEST_F(CudaEngineTest, ACommandOfPyTorchsEndsTheSession) {
  BatchBuilder builder;
  builder.command(Command::kResize, {5}, Bytes().add(uint64_t{8}));
  EXPECT_NE(failure_of(builder).find("no meaning"), std::string::npos);
}

TEST(Latch, TheFirstFailureIsToldOnceAndASpoiledContextAlways) {
  Latch latch;
  latch.fail({kInvalidValue, "first"});
  latch.fail({kNotFound, "second"});
  wire::Reply reply;
  latch.take({}, reply);
  EXPECT_EQ(reply.values[0].integer, kInvalidValue);
  EXPECT_EQ(reply.values[1].text, "first");
  reply = {};
  latch.take({}, reply);
  EXPECT_EQ(reply.values[0].integer, 0);
  latch.fail({kIllegalAddress, "spoiled"});
  for (int i = 0; i < 2; ++i) {
    reply = {};
    latch.take({}, reply);
    EXPECT_EQ(reply.values[0].integer, kIllegalAddress);
  }
}

TEST(Latch, WhatKernelsPrintComesOnceInPieces) {
  Latch latch;
  latch.print(std::string(100000, 'x'));
  latch.print("end");
  wire::Reply reply;
  latch.take({}, reply);
  std::string text;
  for (size_t i = 2; i < reply.values.size(); ++i) text += reply.values[i].text;
  EXPECT_EQ(text, std::string(100000, 'x') + "end");
  reply = {};
  latch.take({}, reply);
  EXPECT_EQ(reply.values.size(), 2u);
}

}  // namespace
}  // namespace rgpu::server::cuda
