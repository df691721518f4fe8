// A Session against a server whose every step the test takes: what is sent and in what order, and
// what a reply does.
#include "runtime/session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "tests/runtime/session_fixture.h"
#include "wire/limits.h"

namespace rgpu::testing {
namespace {

using wire::Command;

TEST_F(SessionTest, SyncSendsWhatWasAppendedAndReturnsTheReply) {
  start();
  ASSERT_TRUE(allocate(1));
  ASSERT_TRUE(allocate(2));
  EXPECT_TRUE(server_.quiet());
  auto synced = sync_in_thread();
  const std::vector<ReceivedRecord> records = server_.read_records(3);
  EXPECT_EQ(records[0].handles, std::vector<Handle>{1});
  EXPECT_EQ(records[1].handles, std::vector<Handle>{2});
  ASSERT_TRUE(records[2].is(Command::kSync));
  wire::Reply reply = reply_to(records[2].word(0));
  reply.server_busy_ns = 7;
  server_.reply(reply);
  const Result<wire::Reply> result = synced.get();
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->failed);
  const SessionStats stats = session_->stats();
  EXPECT_EQ(stats.records, 3u);
  EXPECT_EQ(stats.waits, waits_at_start_ + 1);
  EXPECT_EQ(stats.stalls, 0u);
  EXPECT_EQ(stats.frames, 2u);
  EXPECT_EQ(stats.server_busy_ns, 7u);
}

TEST_F(SessionTest, BatchesGoBeforeTheHandshakeIsAnswered) {
  connect(options("per_op"));
  ASSERT_TRUE(allocate(1));
  server_.accept();
  const wire::Hello hello = server_.read_hello();
  EXPECT_EQ(hello.protocol_version, wire::kProtocolVersion);
  EXPECT_EQ(server_.read_batch().records.size(), 1u);
}

TEST_F(SessionTest, TheHandshakeIsAWaitOnlyUntilItsAnswerCame) {
  connect(options());
  auto info = std::async(std::launch::async, [this] {
    WaitObserver observer;
    return session_->server_info(observer);
  });
  server_.greet();
  const Result<wire::HelloReply> first = info.get();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->server_version, "scripted");
  const uint64_t waits = session_->stats().waits;
  ASSERT_TRUE(session_->server_info(observer_));
  EXPECT_EQ(session_->stats().waits, waits);
}

TEST_F(SessionTest, AReplyThatIsThereCountsAsOneWaitAllTheSame) {
  start("per_op");
  const uint64_t first = fetch({});
  const uint64_t second = fetch({});
  (void)server_.read_records(2);
  server_.reply(reply_to(first));
  server_.reply(reply_to(second));
  ASSERT_TRUE(session_->wait(second, observer_));  // Replies come in order: the first is here too.
  const uint64_t waits = session_->stats().waits;
  Impatient impatient;
  ASSERT_TRUE(session_->wait(first, impatient));
  EXPECT_EQ(session_->stats().waits, waits + 1);
}

TEST_F(SessionTest, APayloadGoesStraightToItsDestination) {
  start("per_op");
  std::vector<std::byte> payload(1 << 20);
  for (size_t index = 0; index < payload.size(); ++index) {
    payload[index] = static_cast<std::byte>(index * 7);
  }
  Watched target(payload.size());
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  auto waited = wait_in_thread(request);
  server_.reply(reply_to(request, payload.size()), payload);
  ASSERT_TRUE(waited.get());
  EXPECT_EQ(target.bytes(), payload);
  target.released.wait();
  EXPECT_EQ(session_->stats().payload_bytes_in, payload.size());
}

TEST_F(SessionTest, AFailedReplyCarriesItsErrorAndNoPayload) {
  start("per_op");
  Watched target(100, std::byte{1});
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  wire::Reply reply = reply_to(request);
  reply.failed = true;
  reply.error.message = "index out of range";
  server_.reply(reply);
  const Result<wire::Reply> result = session_->wait(request, observer_);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->failed);
  EXPECT_EQ(result->error.message, "index out of range");
  EXPECT_EQ(target.bytes(), std::vector<std::byte>(100, std::byte{1}));
}

TEST_F(SessionTest, RepliesFindTheirRequestsInAnyOrder) {
  start("per_op");
  const uint64_t first = fetch({});
  const uint64_t second = fetch({});
  (void)server_.read_records(2);
  wire::Reply reply = reply_to(second);
  reply.server_idle_ns = 2;
  server_.reply(reply);
  ASSERT_TRUE(session_->wait(second, observer_));
  reply = reply_to(first);
  reply.server_idle_ns = 1;
  server_.reply(reply);
  const Result<wire::Reply> result = session_->wait(first, observer_);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->server_idle_ns, 1u);
}

TEST_F(SessionTest, AWaitThatGaveUpLeavesTheSessionUsable) {
  start("per_op");
  Watched target(8, std::byte{1});
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  Impatient impatient;
  EXPECT_EQ(session_->wait(request, impatient).error().code(), Code::kCancelled);
  EXPECT_FALSE(target.is_released());
  EXPECT_EQ(session_->wait(request, impatient).error().code(), Code::kInvalidArgument);
  const std::vector<std::byte> payload(8, std::byte{2});
  server_.reply(reply_to(request, 8), payload);
  target.released.wait();
  EXPECT_EQ(target.bytes(), std::vector<std::byte>(8, std::byte{1}));
  expect_sync_works();
}

TEST_F(SessionTest, PollingSendsNothingAndCountsNoWait) {
  start();
  const uint64_t request = *session_->new_request();
  const auto immediates = std::as_bytes(std::span(&request, 1));
  EXPECT_EQ(session_->appended(3), 0u);
  ASSERT_TRUE(session_->append(3, {number(Command::kSyncStream), 0, {}, immediates}, observer_));
  EXPECT_EQ(session_->appended(3), 1u);
  EXPECT_EQ(session_->appended(0), 0u);
  EXPECT_FALSE(session_->poll(request).has_value());
  EXPECT_TRUE(server_.quiet());
  session_->flush();
  const ReceivedRecord record = server_.read_until(Command::kSyncStream);
  EXPECT_EQ(record.word(0), request);
  server_.reply(reply_to(request));
  std::optional<Result<wire::Reply>> reply;
  while (!(reply = session_->poll(request))) std::this_thread::yield();
  EXPECT_TRUE(reply->has_value());
  EXPECT_EQ(session_->poll(request)->error().code(), Code::kInvalidArgument);  // It has ended.
  EXPECT_EQ(session_->stats().waits, waits_at_start_);
}

TEST_F(SessionTest, ADisownedReplyIsDiscarded) {
  start();
  Watched target(8);
  const uint64_t early = fetch({target.bytes(), target.owner()});
  session_->disown_request(early);
  EXPECT_FALSE(target.is_released());  // It may be arriving.
  session_->flush();
  server_.reply(reply_to(server_.read_until(Command::kFetch).word(0), 8), target.bytes());
  target.released.wait();
  EXPECT_EQ(session_->poll(early)->error().code(), Code::kInvalidArgument);
  expect_sync_works();
}

TEST_F(SessionTest, PollingALostSessionSaysWhy) {
  start();
  const uint64_t request = *session_->new_request();
  server_.goodbye(Code::kInternal, "the test says so");
  std::optional<Result<wire::Reply>> reply;
  while (!(reply = session_->poll(request))) std::this_thread::yield();
  ASSERT_FALSE(reply->has_value());
  EXPECT_NE(reply->error().message().find("the test says so"), std::string::npos);
}

TEST_F(SessionTest, RequestsAreBounded) {
  start();
  std::vector<uint64_t> requests;
  for (int count = 0; count < 1024; ++count) requests.push_back(*session_->new_request());
  EXPECT_EQ(session_->new_request().error().code(), Code::kExhausted);
  Watched target(8);
  session_->abandon_request(requests.back());
  const Result<uint64_t> again = session_->new_request({target.bytes(), target.owner()});
  ASSERT_TRUE(again);
  EXPECT_NE(*again, requests.back());
  session_->abandon_request(*again);
  EXPECT_TRUE(target.is_released());
}

TEST_F(SessionTest, UploadsAreSegmentsAndLetGoOfWhenSent) {
  start();
  Watched source(1000, std::byte{5});
  const Handle handle = session_->new_handles(1);
  ASSERT_TRUE(session_->upload(2, handle, 4000, 500, {source.bytes(), source.owner()}, observer_));
  EXPECT_FALSE(source.is_released());
  auto synced = sync_in_thread();
  const ReceivedBatch batch = server_.read_batch();
  EXPECT_EQ(batch.header.stream, 2u);
  EXPECT_EQ(batch.header.payload_size_bytes, 1000u);
  ASSERT_TRUE(batch.records.at(0).is(Command::kUpload));
  EXPECT_EQ(batch.records[0].handles, std::vector<Handle>{handle});
  EXPECT_EQ(batch.records[0].word(0), 4000u);
  EXPECT_EQ(batch.records[0].word(1), 500u);
  EXPECT_EQ(batch.records[0].word(2), 1000u);
  EXPECT_EQ(batch.segments.at(0), source.bytes());
  source.released.wait();
  server_.reply(reply_to(batch.records.back().word(0)));
  ASSERT_TRUE(synced.get());
  EXPECT_EQ(session_->stats().payload_bytes_out, 1000u);
}

TEST_F(SessionTest, ALargeUploadGoesInPieces) {
  start("per_op");
  constexpr uint64_t kPiece = 64 << 20;
  std::vector<std::byte> source(kPiece + 10);
  source[kPiece] = std::byte{9};
  ASSERT_TRUE(session_->upload(0, 1, source.size(), 0, {source, nullptr}, observer_));
  const ReceivedBatch first = server_.read_batch();
  EXPECT_EQ(first.records.at(0).word(1), 0u);
  EXPECT_EQ(first.records.at(0).word(2), kPiece);
  const ReceivedBatch second = server_.read_batch();
  EXPECT_EQ(second.records.at(0).word(0), source.size());
  EXPECT_EQ(second.records.at(0).word(1), kPiece);
  EXPECT_EQ(second.segments.at(0).at(0), std::byte{9});
}

TEST_F(SessionTest, AnEmptyUploadIsARecordWithAnEmptySegment) {
  start("per_op");
  ASSERT_TRUE(session_->upload(0, 1, 0, 0, {}, observer_));
  const ReceivedBatch batch = server_.read_batch();
  EXPECT_EQ(batch.records.at(0).word(2), 0u);
  EXPECT_EQ(batch.segments.at(0).size(), 0u);
}

TEST_F(SessionTest, StagedBytesAreBoundedAndTheWaitSendsThem) {
  SessionOptions bounded = options();
  bounded.staged_size_bytes_max = 1000;
  start(bounded);
  const std::vector<std::byte> source(5000);
  const auto upload = [&](Handle handle, size_t size_bytes) {
    return session_->upload(0, handle, size_bytes, 0,
                            {std::span(source).first(size_bytes), nullptr}, observer_);
  };
  ASSERT_TRUE(upload(1, 600));
  EXPECT_TRUE(server_.quiet());
  EXPECT_EQ(session_->stats().stalls, 0u);
  auto second = std::async(std::launch::async, [&] { return upload(2, 600); });
  EXPECT_EQ(server_.read_batch().records.at(0).handles, std::vector<Handle>{1});
  EXPECT_TRUE(second.get());
  EXPECT_EQ(session_->stats().stalls, 1u);
  auto larger_than_the_bound = std::async(std::launch::async, [&] { return upload(3, 5000); });
  EXPECT_EQ(server_.read_batch().records.at(0).handles, std::vector<Handle>{2});
  EXPECT_TRUE(larger_than_the_bound.get());
  expect_sync_works();
}

TEST_F(SessionTest, AFullRingSendsAndLosesNothing) {
  SessionOptions small = options();
  small.ring_size_bytes = 128;
  start(small);
  constexpr Handle kRecords = 1000;
  auto producer = std::async(std::launch::async, [this] {
    WaitObserver observer;
    for (Handle handle = 1; handle <= kRecords; ++handle) {
      if (!allocate(handle, 0, observer)) return false;
    }
    return session_->sync(observer).has_value();
  });
  const std::vector<ReceivedRecord> records = server_.read_records(kRecords + 1);
  server_.reply(reply_to(records.back().word(0)));
  EXPECT_TRUE(producer.get());
  for (Handle handle = 1; handle <= kRecords; ++handle) {
    ASSERT_EQ(records[handle - 1].handles, std::vector<Handle>{handle});
  }
  EXPECT_GT(session_->stats().stalls, 0u);
}

TEST_F(SessionTest, ManyThreadsAndStreamsKeepEachThreadsOrder) {
  SessionOptions small = options("adaptive");
  small.ring_size_bytes = 1024;
  start(small);
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kRecords = 2000;
  std::vector<std::thread> threads;
  for (uint32_t stream = 0; stream < kThreads; ++stream) {
    threads.emplace_back([this, stream] {
      WaitObserver observer;
      for (uint64_t count = 1; count <= kRecords; ++count) {
        const Handle handle = stream * uint64_t{1000000} + count;
        if (!allocate(handle, stream, observer)) return;
        session_->free(handle);
      }
    });
  }
  std::vector<uint64_t> last(kThreads);
  for (const ReceivedRecord& record : server_.read_records(kThreads * kRecords)) {
    if (record.is(Command::kStream)) continue;
    const uint64_t thread = record.handles.at(0) / 1000000;
    const uint64_t count = record.handles.at(0) % 1000000;
    if (record.is(Command::kFree)) {
      ASSERT_LE(count, last[thread]);
    } else {
      ASSERT_EQ(count, ++last[thread]);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session_->stats().frees, kThreads * kRecords);
}

TEST_F(SessionTest, GivingUpOnAFullRingIssuesNothing) {
  SessionOptions small = options();
  small.ring_size_bytes = 1 << 16;
  start(small);
  // Nobody reads, so the ring stays full as soon as the socket's buffers are.
  Impatient impatient;
  const std::vector<Handle> handles(2000, 1);
  const Result<uint32_t> op = session_->define_template(make_template("aten::cat", 2000));
  ASSERT_TRUE(op);
  Status status;
  uint64_t appended = 0;
  while (status.ok()) {
    status = session_->append(0, {*op, 0, handles, {}}, impatient);
    if (status.ok()) ++appended;
    ASSERT_LT(appended, 1u << 20);
  }
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_EQ(session_->stats().records, appended);
  expect_sync_works();
}

TEST_F(SessionTest, WhatNeverFitsIsTheCallersFault) {
  start();
  const std::vector<Handle> handles(limits::kHandlesPerRecordMax + 1, 1);
  EXPECT_EQ(session_->append(0, {16, 0, handles, {}}, observer_).code(), Code::kInvalidArgument);
  EXPECT_EQ(allocate(1, limits::kStreamsMax).code(), Code::kInvalidArgument);
  EXPECT_EQ(session_->define_template({}).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(allocate(1, limits::kStreamsMax - 1));
}

TEST_F(SessionTest, TemplatesTravelBeforeTheirRecordsAndAreForgotten) {
  start();
  const Result<uint32_t> relu = session_->define_template(make_template("aten::relu", 1));
  ASSERT_TRUE(relu);
  const Handle handle = 1;
  ASSERT_TRUE(session_->append(0, {*relu, 42, std::span(&handle, 1), {}}, observer_));
  ASSERT_TRUE(session_->forget_templates(observer_));
  const Result<uint32_t> neg = session_->define_template(make_template("aten::neg", 1));
  EXPECT_EQ(*neg, *relu);
  ASSERT_TRUE(session_->append(0, {*neg, 43, std::span(&handle, 1), {}}, observer_));
  auto synced = sync_in_thread();
  const ReceivedBatch first = server_.read_batch();
  EXPECT_EQ(first.templates.at(0).name, "aten::relu");
  EXPECT_EQ(first.records.at(0).location, 42u);
  EXPECT_TRUE(first.records.back().is(Command::kForgetTemplates));
  const ReceivedBatch second = server_.read_batch();
  EXPECT_EQ(second.templates.at(0).name, "aten::neg");
  EXPECT_EQ(second.records.at(0).location, 43u);
  server_.reply(reply_to(second.records.back().word(0)));
  ASSERT_TRUE(synced.get());
  EXPECT_EQ(session_->stats().templates, 2u);
}

TEST_F(SessionTest, FreesAloneAreSentAfterAWhile) {
  start();
  session_->free(5);
  const ReceivedBatch batch = server_.read_batch();
  ASSERT_EQ(batch.records.size(), 1u);
  EXPECT_TRUE(batch.records[0].is(Command::kFree));
  EXPECT_EQ(session_->stats().records, 0u);
}

TEST_F(SessionTest, EachPolicySendsWithoutBeingAsked) {
  for (const char* policy : {"per_op", "bytes=1", "deadline=100", "adaptive"}) {
    start(policy);
    ASSERT_TRUE(allocate(1));
    ASSERT_TRUE(allocate(2));
    EXPECT_EQ(server_.read_records(2).size(), 2u);
    TearDown();
  }
}

TEST_F(SessionTest, PerOpSendsOneRecordAFrame) {
  start();
  for (Handle handle = 1; handle <= 3; ++handle) ASSERT_TRUE(allocate(handle));
  ASSERT_TRUE(session_->set_flush_policy("per_op"));
  EXPECT_EQ(session_->flush_policy(), "per_op");
  for (Handle handle = 1; handle <= 3; ++handle) {
    EXPECT_EQ(server_.read_batch().records.size(), 1u);
  }
}

TEST_F(SessionTest, AWrongPolicyChangesNothing) {
  start();
  EXPECT_EQ(session_->set_flush_policy("soon").code(), Code::kInvalidArgument);
  EXPECT_EQ(session_->flush_policy(), "sync");
}

TEST_F(SessionTest, HandlesAreConsecutiveAndNeverZero) {
  start();
  const Handle first = session_->new_handles(3);
  EXPECT_GE(first, 1u);
  EXPECT_EQ(session_->new_handles(1), first + 3);
}

TEST_F(SessionTest, CloseSendsWhatIsPendingAndAGoodbye) {
  start();
  ASSERT_TRUE(allocate(1));
  auto closed = std::async(std::launch::async, [this] { session_->close(); });
  EXPECT_EQ(server_.read_batch().records.size(), 1u);
  const wire::FrameHeader goodbye = server_.read_header();
  EXPECT_EQ(goodbye.kind, static_cast<uint16_t>(wire::FrameKind::kGoodbye));
  EXPECT_EQ(goodbye.sequence, 1u);
  (void)server_.read_bytes(goodbye.body_size_bytes);
  server_.read_to_end();
  server_.close();
  closed.get();
  EXPECT_EQ(allocate(2).code(), Code::kDisconnected);
  EXPECT_NE(session_->status().message().find("closed"), std::string::npos);
  session_->close();
}

TEST_F(SessionTest, AForkedChildCannotUseTheSessionAndDoesNotDisturbIt) {
  start();
  const pid_t child = ::fork();
  if (child == 0) {
    session_->abandon_after_fork();
    const bool refused = allocate(1).code() == Code::kDisconnected &&
                         session_->status().message().find("fork") != std::string::npos &&
                         session_->wait(1, observer_).error().code() == Code::kDisconnected;
    session_->free(1);
    session_->close();
    session_.reset();
    ::_exit(refused ? 0 : 1);
  }
  int exit_status = -1;
  ASSERT_EQ(::waitpid(child, &exit_status, 0), child);
  EXPECT_EQ(exit_status, 0);
  expect_sync_works();
}

}  // namespace
}  // namespace rgpu::testing
