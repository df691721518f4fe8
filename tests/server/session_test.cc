// A worker's session without PyTorch, over epoll and over io_uring: the same tests for both.

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "tests/server/io_uring_ban.h"
#include "tests/server/raw_client.h"
#include "tests/server/worker_process.h"

namespace rgpu::server::testing {
namespace {

std::vector<std::byte> pattern(size_t size_bytes, size_t seed) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 2);
  return bytes;
}

void append(std::vector<std::byte>& stream, std::span<const std::byte> bytes) {
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

// A batch as it goes over the wire.
void append_batch(std::vector<std::byte>& stream, const BatchBuilder::Built& batch,
                  uint64_t sequence) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kBatch);
  header.body_size_bytes = static_cast<uint32_t>(batch.body.size());
  header.segment_count = static_cast<uint32_t>(batch.segments.size());
  for (const auto& segment : batch.segments) header.payload_size_bytes += segment.size();
  header.sequence = sequence;
  append(stream, wire::to_bytes(header));
  append(stream, batch.body);
  for (const auto& segment : batch.segments) append(stream, segment);
}

class SessionOver : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Result<IoChoice> io = choose_io(GetParam());
    if (!io) GTEST_SKIP() << io.error().message();
    worker.emplace(WorkerOptions{.io = *io});
    client.emplace(worker->port());
    ASSERT_EQ(client->greet().code, Code::kOk);
  }
  void expect_fetched(Handle handle, const std::vector<std::byte>& expected) {
    batch.fetch(handle, ++request, expected.size());
    client->send_batch(batch.finish());
    std::vector<std::byte> payload;
    EXPECT_EQ(client->receive_reply(&payload).request, request);
    EXPECT_TRUE(payload == expected) << expected.size() << " bytes came back otherwise";
  }

  std::optional<WorkerProcess> worker;
  std::optional<RawClient> client;
  BatchBuilder batch;
  uint64_t request = 0;
};

TEST_P(SessionOver, CarriesTheTraffic) { EXPECT_EQ(carrier_of(worker->pid()), GetParam()); }

TEST_P(SessionOver, PayloadsOfEverySizeComeBackAsTheyWere) {
  Handle handle = 0;
  for (const size_t size_bytes :
       {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{65535}, size_t{65536}, size_t{65537},
        size_t{262'144}, size_t{262'145}, size_t{20'000'003}}) {
    const std::vector<std::byte> bytes = pattern(size_bytes, size_bytes);
    batch.upload_bytes(++handle, bytes);
    client->send_batch(batch.finish());
    expect_fetched(handle, bytes);
  }
}

TEST_P(SessionOver, FramesSurviveAnyCutOfTheStream) {
  constexpr uint64_t kBatches = 3000;
  std::vector<std::byte> stream;
  for (uint64_t sequence = 1; sequence <= kBatches; ++sequence) {
    for (uint64_t i = 0; i < sequence % 97; ++i) batch.allocate(100'000 + i, i);
    if (sequence % 3 != 0) batch.upload_bytes(sequence, pattern(sequence * 7 % 1021, sequence));
    append_batch(stream, batch.finish(), sequence);
  }
  // Sizes that share no factor with those of the frames, from single bytes to many frames.
  size_t at = 0;
  for (size_t part = 1; at < stream.size(); part = part * 5 % 300'007) {
    const size_t size_bytes = std::min(part, stream.size() - at);
    client->send_bytes(std::span(stream).subspan(at, size_bytes));
    at += size_bytes;
  }
  client->next_sequence = kBatches + 1;
  for (const uint64_t sequence : {uint64_t{1}, uint64_t{1000}, uint64_t{2999}}) {
    expect_fetched(sequence, pattern(sequence * 7 % 1021, sequence));
  }
}

TEST_P(SessionOver, ABodyMayBeLargerThanTheInputBuffer) {
  for (int round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 100'000; ++i) batch.allocate(100'000 + i, i);
    const std::vector<std::byte> bytes = pattern(12'345, 1);
    batch.upload_bytes(1, bytes);
    const BatchBuilder::Built built = batch.finish();
    ASSERT_GT(built.body.size(), 512u << 10);
    client->send_batch(built);
    expect_fetched(1, bytes);
  }
}

TEST_P(SessionOver, EveryBatchIsAcknowledgedAlsoWhenTheQueueIsFull) {
  constexpr uint64_t kBatches = 20'000;
  std::vector<std::byte> stream;
  for (uint64_t sequence = 1; sequence <= kBatches; ++sequence) {
    batch.allocate(sequence, 8);
    append_batch(stream, batch.finish(), sequence);
  }
  client->send_bytes(stream);
  uint64_t applied = 0;
  while (applied < kBatches) {
    const std::optional<Frame> frame = client->receive();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->header.kind, static_cast<uint16_t>(wire::FrameKind::kAck));
    ASSERT_GT(frame->header.sequence, applied);
    applied = frame->header.sequence;
  }
}

TEST_P(SessionOver, RepliesNobodyReadsHoldTheWorkerBackAndAllArrive) {
  const std::vector<std::byte> bytes = pattern(1 << 20, 9);
  batch.upload_bytes(1, bytes);
  client->send_batch(batch.finish());
  constexpr uint64_t kFetches = 200;  // More than the outbox and the sockets hold.
  for (uint64_t i = 0; i < kFetches; ++i) batch.fetch(1, i, bytes.size());
  client->send_batch(batch.finish());
  for (uint64_t i = 0; i < kFetches; ++i) {
    std::vector<std::byte> payload;
    ASSERT_EQ(client->receive_reply(&payload).request, i);
    ASSERT_TRUE(payload == bytes);
  }
}

TEST_P(SessionOver, ManySmallRepliesArriveInOrder) {
  constexpr uint64_t kSyncs = 2000;
  for (uint64_t i = 0; i < kSyncs; ++i) batch.sync(i);
  client->send_batch(batch.finish());
  for (uint64_t i = 0; i < kSyncs; ++i) ASSERT_EQ(client->receive_reply().request, i);
}

// ---- The end ------------------------------------------------------------------------------------

TEST_P(SessionOver, AGoodbyeEndsTheWorker) {
  client->send_frame(wire::FrameKind::kGoodbye, 0, wire::encode(wire::Goodbye{}));
  EXPECT_FALSE(client->receive().has_value());
  EXPECT_EQ(worker->wait(), 0);
}

TEST_P(SessionOver, AClientThatVanishesInAPayloadEndsTheWorker) {
  batch.upload_bytes(1, pattern(1 << 20, 0));
  std::vector<std::byte> stream;
  append_batch(stream, batch.finish(), 1);
  client->send_bytes(std::span(stream).first(stream.size() / 2));
  client.reset();
  EXPECT_EQ(worker->wait(), 0);
}

TEST_P(SessionOver, SigtermSaysGoodbye) {
  kill(worker->pid(), SIGTERM);
  EXPECT_NE(client->receive_goodbye().message.find("shutting down"), std::string::npos);
  EXPECT_EQ(worker->wait(), 0);
}

TEST_P(SessionOver, ABatchOutOfSequenceIsAnsweredWithAReason) {
  client->next_sequence = 5;
  batch.allocate(1, 8);
  client->send_batch(batch.finish());
  EXPECT_NE(client->receive_goodbye().message.find("batch 5 came where batch 1 was due"),
            std::string::npos);
  client.reset();
  EXPECT_EQ(worker->wait(), 0);
}

TEST_P(SessionOver, ACrashSaysGoodbyeAfterWholeFrames) {
  for (uint64_t i = 0; i < 100; ++i) batch.sync(i);
  client->send_batch(batch.finish());
  batch.command(wire::Command::kResize, {1}, Bytes().add(uint64_t{8}));
  client->send_batch(batch.finish());
  const wire::Goodbye goodbye = client->receive_goodbye();
  EXPECT_EQ(goodbye.code, Code::kDisconnected);
  EXPECT_NE(goodbye.message.find("SIGABRT"), std::string::npos) << goodbye.message;
  client.reset();
  EXPECT_EQ(worker->wait(), -SIGABRT);
}

INSTANTIATE_TEST_SUITE_P(Io, SessionOver, ::testing::Values("epoll", "io_uring"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace rgpu::server::testing
