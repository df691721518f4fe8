// Large uploads of a Session whose server takes every step by hand, and how far they have got.
#include <algorithm>
#include <thread>

#include "tests/runtime/session_fixture.h"

namespace rgpu::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SessionUploadTest : public SessionTest {
 protected:
  static std::vector<std::byte> pattern(size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    for (size_t at = 0; at < size_bytes; ++at) {
      bytes[at] = static_cast<std::byte>((at * 2654435761u) >> 13);
    }
    return bytes;
  }
  Status upload(Handle handle, std::span<const std::byte> bytes) {
    return session_->upload(0, handle, bytes.size(), 0, {bytes, nullptr}, observer_);
  }
};

TEST_F(SessionUploadTest, TheCallersBytesAreItsOwnWhenTheCallReturns) {
  for (const char* policy : {"sync", "per_op"}) {
    for (const size_t size_bytes : {size_t{1000}, kMiB - 1, kMiB, 3 * kMiB + 7, 24 * kMiB}) {
      start(policy);
      const std::vector<std::byte> wanted = pattern(size_bytes);
      std::vector<std::byte> source = wanted;
      ASSERT_TRUE(upload(1, source));  // Nobody reads at the other end yet.
      std::ranges::fill(source, std::byte{0});
      EXPECT_EQ(session_->stats().payload_bytes_staged, size_bytes);
      EXPECT_EQ(session_->stats().waits, waits_at_start_) << policy << " " << size_bytes;
      session_->flush();
      const ReceivedBatch batch = server_.read_batch();
      ASSERT_EQ(batch.segments.size(), 1u);
      EXPECT_TRUE(batch.segments[0] == wanted) << policy << " " << size_bytes;
      expect_sync_works();
      EXPECT_EQ(session_->stats().payload_bytes_out, size_bytes);
      TearDown();
    }
  }
}

TEST_F(SessionUploadTest, SmallAndLargeOnesOfABatchKeepTheirOrder) {
  start();
  const std::vector<std::byte> large = pattern(2 * kMiB);
  const std::vector<std::byte> small = pattern(100);
  Watched owned(3 * kMiB, std::byte{7});
  ASSERT_TRUE(upload(1, small));
  ASSERT_TRUE(upload(2, large));
  ASSERT_TRUE(upload(3, small));
  ASSERT_TRUE(session_->upload(0, 4, 3 * kMiB, 0, {owned.bytes(), owned.owner()}, observer_));
  ASSERT_TRUE(upload(5, large));
  EXPECT_FALSE(owned.is_released());
  session_->flush();
  const ReceivedBatch batch = server_.read_batch();
  ASSERT_EQ(batch.segments.size(), 5u);
  EXPECT_TRUE(batch.segments[0] == small && batch.segments[1] == large);
  EXPECT_TRUE(batch.segments[2] == small && batch.segments[4] == large);
  EXPECT_TRUE(batch.segments[3] == owned.bytes());
  owned.released.wait();
}

TEST_F(SessionUploadTest, ASessionThatIsLostMeanwhileEndsTheCall) {
  for (int count = 0; count < 20; ++count) {
    start("per_op");
    const std::vector<std::byte> source(64 * kMiB);
    auto uploaded = std::async(std::launch::async, [&] {
      WaitObserver observer;
      return session_->upload(0, 1, source.size(), 0, {source, nullptr}, observer);
    });
    (void)server_.read_header();
    (void)server_.read_bytes(kMiB * static_cast<size_t>(count));
    server_.reset();
    const Status status = uploaded.get();  // Either it was quicker, or it says why not.
    EXPECT_TRUE(status.ok() || status.code() == Code::kDisconnected) << status.to_string();
    while (session_->alive()) std::this_thread::yield();
    EXPECT_EQ(upload(2, source).code(), Code::kDisconnected);
    TearDown();
  }
}

TEST_F(SessionUploadTest, CountersTellHowFarATransferHasGot) {
  start("per_op");
  const std::vector<std::byte> payload = pattern(4 * kMiB);
  Watched target(payload.size());
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  wire::Reply reply = reply_to(request, payload.size());
  const std::vector<std::byte> body = wire::encode(reply);
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kReply);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  header.segment_count = 1;
  header.payload_size_bytes = payload.size();
  const auto header_bytes = wire::to_bytes(header);
  server_.send(header_bytes);
  server_.send(body);
  const std::span<const std::byte> bytes(payload);
  server_.send(bytes.first(kMiB));
  while (session_->stats().payload_bytes_in != kMiB) std::this_thread::yield();
  EXPECT_FALSE(session_->poll(request).has_value());
  EXPECT_EQ(session_->stats().payload_bytes_requested, payload.size());
  server_.send(bytes.subspan(kMiB));
  ASSERT_TRUE(session_->wait(request, observer_));
  EXPECT_TRUE(target.bytes() == payload);
  EXPECT_EQ(session_->stats().payload_bytes_in, payload.size());
}

TEST_F(SessionUploadTest, WhatWillNotComeIsNotCountedAsRequested) {
  start("per_op");
  std::vector<std::byte> target(100);
  session_->abandon_request(*session_->new_request({target, nullptr}));
  EXPECT_EQ(session_->stats().payload_bytes_requested, 0u);
  const uint64_t request = fetch({target, nullptr});
  EXPECT_EQ(session_->stats().payload_bytes_requested, 100u);
  (void)server_.read_records(1);
  wire::Reply failed = reply_to(request);
  failed.failed = true;
  server_.reply(failed);
  ASSERT_TRUE(session_->wait(request, observer_));
  EXPECT_EQ(session_->stats().payload_bytes_requested, 0u);
}

}  // namespace
}  // namespace rgpu::testing
