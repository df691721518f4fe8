// How sessions are lost: at the handshake, and later in every state. What is proven each time: the
// reason is one that a user can act on, it is the same for every later call, and nobody waits on.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/runtime/session_fixture.h"

namespace rgpu::testing {
namespace {

using wire::FrameHeader;
using wire::FrameKind;

class SessionLossTest : public SessionTest {
 protected:
  std::string address() const { return "127.0.0.1:" + std::to_string(server_.port()); }

  // The session ends, or has ended, with this reason, and all calls say so.
  void expect_lost(const std::string& reason) {
    const Result<wire::Reply> synced = session_->sync(observer_);
    ASSERT_FALSE(synced);
    EXPECT_EQ(synced.error().code(), Code::kDisconnected);
    const std::string message = synced.error().message();
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_NE(message.find(address()), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_FALSE(session_->alive());
    EXPECT_EQ(session_->status().message(), message);
    EXPECT_EQ(allocate(1).message(), message);
    EXPECT_EQ(session_->new_request().error().message(), message);
    EXPECT_EQ(session_->server_info(observer_).error().message(), message);
    EXPECT_EQ(session_->define_template(make_template("aten::relu", 1)).error().message(), message);
    EXPECT_EQ(session_->upload(0, 1, 0, 0, {}, observer_).message(), message);
    EXPECT_EQ(session_->forget_templates(observer_).message(), message);
    session_->free(1);
  }
  void send_header(FrameKind kind, uint32_t body_size_bytes, uint64_t sequence,
                   uint64_t payload_size_bytes = 0) {
    FrameHeader header;
    header.kind = static_cast<uint16_t>(kind);
    header.body_size_bytes = body_size_bytes;
    header.sequence = sequence;
    header.segment_count = payload_size_bytes == 0 ? 0 : 1;
    header.payload_size_bytes = payload_size_bytes;
    server_.send(wire::to_bytes(header));
  }
};

TEST_F(SessionLossTest, NobodyListens) {
  SessionOptions nobody = options();
  nobody.port = ScriptedServer::closed_port();
  const Result<std::shared_ptr<Session>> session = Session::connect(nobody);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code(), Code::kDisconnected);
  EXPECT_EQ(session.error().message(),
            "no rgpu server at 127.0.0.1:" + std::to_string(nobody.port) +
                " (Connection refused): start one with `rgpu-opserver`, or run your program with "
                "`rgpu-run --local`");
}

TEST_F(SessionLossTest, TheHostNameIsUnknown) {
  SessionOptions nowhere = options();
  nowhere.host = "no such host";
  const Result<std::shared_ptr<Session>> session = Session::connect(nowhere);
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().message().find("\"no such host\""), std::string::npos);
}

TEST_F(SessionLossTest, OptionsAreChecked) {
  SessionOptions odd = options();
  odd.ring_size_bytes = 1000;
  EXPECT_EQ(Session::connect(odd).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Session::connect(options("soon")).error().code(), Code::kInvalidArgument);
}

TEST_F(SessionLossTest, TheServerSaysNothing) {
  SessionOptions hasty = options();
  hasty.connect_timeout = std::chrono::milliseconds(100);
  connect(hasty);
  expect_lost("did not answer as an rgpu server within 100 ms");
}

TEST_F(SessionLossTest, TheServerSpeaksHttp) {
  connect(options());
  server_.accept();
  server_.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheServerSendsALittleGarbageAndCloses) {
  connect(options());
  server_.accept();
  server_.send("-ERR unknown command\r\n");
  server_.close();
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheServerSendsALittleGarbageAndStays) {
  SessionOptions hasty = options();
  hasty.connect_timeout = std::chrono::milliseconds(100);
  connect(hasty);
  server_.accept();
  server_.send("220 ready\r\n");
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheServerSendsBinaryGarbage) {
  connect(options());
  server_.accept();
  server_.send(std::string(64, '\xee'));
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheFirstFrameIsAnother) {
  connect(options());
  server_.accept();
  server_.ack(0);
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheHelloReplyDoesNotVerify) {
  connect(options());
  server_.accept();
  send_header(FrameKind::kHelloReply, 64, 0);
  server_.send(std::string(64, '\x7f'));
  expect_lost(address() + " is not an rgpu server: ");
}

TEST_F(SessionLossTest, TheServerRefuses) {
  connect(options());
  server_.accept();
  (void)server_.read_hello();
  wire::HelloReply refusal;
  refusal.code = Code::kInvalidArgument;
  refusal.message = "this server speaks rgpu protocol version 2, the client version 1";
  server_.hello_reply(refusal);
  server_.close();
  expect_lost(refusal.message);
}

TEST_F(SessionLossTest, TheServerIsOfAnotherVersion) {
  connect(options());
  server_.accept();
  wire::HelloReply reply;
  reply.protocol_version = 7;
  reply.session_id.resize(16);
  server_.hello_reply(reply);
  expect_lost("version 7, this client version 1");
}

TEST_F(SessionLossTest, TheServerSaysGoodbyeInsteadOfHello) {
  connect(options());
  server_.accept();
  server_.goodbye(Code::kExhausted, "64 sessions are open, which is the most");
  expect_lost("refused the session: 64 sessions are open");
}

TEST_F(SessionLossTest, TheServerClosesInsteadOfHello) {
  connect(options());
  server_.accept();
  (void)server_.read_hello();
  server_.close();
  expect_lost("closed the connection before it answered as an rgpu server");
}

TEST_F(SessionLossTest, TheServerSaysGoodbyeWhileNobodyWaits) {
  start();
  server_.goodbye(Code::kDisconnected, "the server is shutting down");
  server_.close();
  expect_lost("the server is shutting down");
}

TEST_F(SessionLossTest, TheConnectionEndsWhileNobodyWaits) {
  start();
  server_.close();
  expect_lost("closed the connection (");
}

TEST_F(SessionLossTest, TheConnectionIsResetDuringAWait) {
  start("per_op");
  Watched target(8);
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  auto waited = wait_in_thread(request);
  server_.reset();
  EXPECT_EQ(waited.get().error().code(), Code::kDisconnected);
  expect_lost("closed the connection (Connection reset by peer)");
  target.released.wait();
}

TEST_F(SessionLossTest, TheConnectionEndsInTheMiddleOfAFrame) {
  start("per_op");
  const uint64_t request = fetch({});
  (void)server_.read_records(1);
  auto waited = wait_in_thread(request);
  send_header(FrameKind::kReply, 1000, 1);
  server_.send("half");
  server_.close();
  EXPECT_EQ(waited.get().error().code(), Code::kDisconnected);
  expect_lost("closed the connection (");
}

TEST_F(SessionLossTest, TheConnectionEndsInTheMiddleOfAPayload) {
  start("per_op");
  Watched target(1000);
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  const std::vector<std::byte> body = wire::encode(reply_to(request, 1000));
  send_header(FrameKind::kReply, static_cast<uint32_t>(body.size()), 1, 1000);
  server_.send(body);
  server_.send("half");
  server_.close();
  expect_lost("closed the connection (");
  EXPECT_EQ(session_->wait(request, observer_).error().code(), Code::kDisconnected);
  target.released.wait();
}

TEST_F(SessionLossTest, AnUnsentUploadIsLetGoOf) {
  start();
  Watched source(100);
  ASSERT_TRUE(session_->upload(0, 1, 100, 0, {source.bytes(), source.owner()}, observer_));
  server_.close();
  source.released.wait();
  expect_lost("closed the connection (");
}

TEST_F(SessionLossTest, AProducerThatWaitsForRoomIsWoken) {
  SessionOptions small = options();
  small.ring_size_bytes = 1 << 16;
  start(small);
  const std::vector<Handle> handles(2000, 1);
  const Result<uint32_t> op = session_->define_template(make_template("aten::cat", 2000));
  std::promise<void> waiting;
  struct Patient : WaitObserver {
    explicit Patient(std::promise<void>& promise) : waiting(promise) {}
    bool keep_waiting() override {  // 50 ms without room: the socket's buffers are full too.
      if (!std::exchange(told, true)) waiting.set_value();
      return true;
    }
    std::promise<void>& waiting;
    bool told = false;
  };
  auto producer = std::async(std::launch::async, [&] {
    Patient patient(waiting);
    Status status;
    while (status.ok()) status = session_->append(0, {*op, 0, handles, {}}, patient);
    return status;
  });
  waiting.get_future().wait();
  server_.close();
  EXPECT_EQ(producer.get().code(), Code::kDisconnected);
  expect_lost("closed the connection (");
}

TEST_F(SessionLossTest, AServerThatTakesNothingIsGivenUp) {
  SessionOptions small = options();
  small.ring_size_bytes = 1 << 16;
  small.stall_timeout = std::chrono::milliseconds(200);
  start(small);
  const std::vector<Handle> handles(2000, 1);
  const Result<uint32_t> op = session_->define_template(make_template("aten::cat", 2000));
  Status status;
  while (status.ok()) status = session_->append(0, {*op, 0, handles, {}}, observer_);
  EXPECT_EQ(status.code(), Code::kDisconnected);
  expect_lost("took nothing for 200 ms while a ring was full");
}

TEST_F(SessionLossTest, AnAcknowledgementOfWhatWasNeverSent) {
  start("per_op");
  ASSERT_TRUE(allocate(1));
  (void)server_.read_batch();
  server_.ack(9);
  expect_lost("broke the protocol: it acknowledged batch 9 after 0 of ");
}

TEST_F(SessionLossTest, AnAcknowledgementThatGoesBack) {
  start("per_op");
  for (Handle handle = 1; handle <= 2; ++handle) {
    ASSERT_TRUE(allocate(handle));
    (void)server_.read_batch();
  }
  server_.ack(2);
  server_.ack(1);
  expect_lost("broke the protocol: it acknowledged batch 1 after 2 of ");
}

TEST_F(SessionLossTest, AReplyToNothing) {
  start();
  server_.reply(reply_to(4242));
  expect_lost("broke the protocol: the server replied to request 4242");
}

TEST_F(SessionLossTest, AReplyThatDoesNotVerify) {
  start();
  send_header(FrameKind::kReply, 64, 0);
  server_.send(std::string(64, '\x7f'));
  expect_lost("broke the protocol: ");
}

TEST_F(SessionLossTest, AReplyOfAnotherSize) {
  start("per_op");
  Watched target(8);
  const uint64_t request = fetch({target.bytes(), target.owner()});
  (void)server_.read_records(1);
  const std::vector<std::byte> payload(9);
  server_.reply(reply_to(request, 9), payload);
  EXPECT_EQ(session_->wait(request, observer_).error().code(), Code::kDisconnected);
  expect_lost("internal error: ");
}

TEST_F(SessionLossTest, ASecondHelloReply) {
  start();
  wire::HelloReply reply;
  reply.session_id.resize(16);
  server_.hello_reply(reply);
  expect_lost("unexpected frame of kind 2");
}

TEST_F(SessionLossTest, GarbageAfterTheHandshake) {
  start();
  server_.send(std::string(64, '\xee'));
  expect_lost("broke the protocol: ");
}

}  // namespace
}  // namespace rgpu::testing
