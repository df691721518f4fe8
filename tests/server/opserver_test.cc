// The real executable: sessions, their isolation, and clients that misbehave.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "server/io_choice.h"
#include "tests/server/io_uring_ban.h"
#include "tests/server/raw_client.h"
#include "tests/server/server_process.h"

namespace rgpu::server::testing {
namespace {

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

wire::OpTemplate add_op() {
  return op("aten::add", "Tensor", {tensor_arg({3}), tensor_arg({3}), scalar_int_arg()},
            {new_output({3})});
}

// Uploads, adds, fetches: proves that a session works.
void expect_works(RawClient& client, Handle base = 1) {
  BatchBuilder batch;
  batch.command(wire::Command::kForgetTemplates, {});
  client.send_batch(batch.finish());
  const uint32_t add = batch.define(add_op());
  batch.upload<float>(base, {1, 2, 3}).upload<float>(base + 1, {10, 20, 30});
  batch.record(add, {base, base + 1, base + 2}, Bytes().add(int64_t{2}));
  batch.fetch(base + 2, 5, 12);
  client.send_batch(batch.finish());
  std::vector<std::byte> payload;
  const wire::Reply reply = client.receive_reply(&payload);
  EXPECT_EQ(reply.request, 5u);
  EXPECT_FALSE(reply.failed) << reply.error.message;
  EXPECT_EQ(floats(payload), (std::vector<float>{21, 42, 63}));
}

TEST(OpServer, FirstLineTellsThePort) {
  ServerProcess server;
  EXPECT_EQ(server.first_line().rfind("rgpu-opserver listening on 127.0.0.1:", 0), 0u);
  EXPECT_NE(server.first_line().find("(device cpu, PyTorch 2."), std::string::npos);
}

TEST(OpServer, RunsAnOp) {
  ServerProcess server({"--devices", "2"});
  RawClient client(server.port());
  const wire::HelloReply reply = client.greet();
  EXPECT_EQ(reply.code, Code::kOk);
  EXPECT_EQ(reply.device_type, "cpu");
  EXPECT_EQ(reply.devices.size(), 2u);
  EXPECT_EQ(reply.session_id.size(), 16u);
  expect_works(client);
}

// ---- What carries the traffic -------------------------------------------------------------------

void expect_carried_by(const ServerProcess& server, const std::string& carrier) {
  RawClient client(server.port());
  (void)client.greet();
  expect_works(client);
  const std::vector<pid_t> workers = server.workers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(carrier_of(workers[0]), carrier);
  EXPECT_NE(server.log().find(": over " + carrier), std::string::npos) << server.log();
}

TEST(OpServer, EpollCarriesASessionWhenAskedFor) {
  expect_carried_by(ServerProcess({"--io", "epoll"}), "epoll");
}

TEST(OpServer, IoUringCarriesASessionWhenAskedFor) {
  const Status status = probe_io_uring();
  if (!status.ok()) GTEST_SKIP() << status.message();
  expect_carried_by(ServerProcess({"--io", "io_uring"}), "io_uring");
}

TEST(OpServer, EpollCarriesASessionWhereIoUringIsForbidden) {
  const ServerProcess server({"--io", "auto"}, true);
  expect_carried_by(server, "epoll");
  EXPECT_NE(server.log().find("over epoll (no io_uring: io_uring_setup: Operation not permitted"),
            std::string::npos)
      << server.log();
}

TEST(OpServer, IoUringByNameWhereForbiddenIsAnErrorAtStart) {
  try {
    const ServerProcess server({"--io", "io_uring"}, true);
    FAIL() << "it started";
  } catch (const std::runtime_error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--io io_uring cannot be had here: "), std::string::npos) << message;
  }
}

// ---- Isolation ----------------------------------------------------------------------------------

// A call that ends a process: an index that max_pool2d's backward does not check.
void send_killer(RawClient& client) {
  BatchBuilder batch;
  const uint32_t backward =
      batch.define(op("aten::max_pool2d_with_indices_backward", "",
                      {tensor_arg({1, 1, 2, 2}), tensor_arg({1, 1, 4, 4}), int_list_arg({2, 2}),
                       int_list_arg({2, 2}), int_list_arg({0, 0}), int_list_arg({1, 1}),
                       bool_arg(false), tensor_arg({1, 1, 2, 2}, kLong)},
                      {new_output({1, 1, 4, 4})}));
  const int64_t bad = int64_t{1} << 45;
  batch.upload<float>(1, {1, 1, 1, 1}).upload<float>(2, std::vector<float>(16, 0));
  batch.upload<int64_t>(3, {bad, bad, bad, bad}).record(backward, {1, 2, 3, 4});
  client.send_batch(batch.finish());
}

TEST(OpServer, AnOpThatKillsItsWorkerEndsNoOtherSession) {
  ServerProcess server;
  RawClient victim(server.port());
  RawClient bystander(server.port());
  (void)victim.greet();
  (void)bystander.greet();
  send_killer(victim);
  const wire::Goodbye goodbye = victim.receive_goodbye();
  EXPECT_EQ(goodbye.code, Code::kDisconnected);
  EXPECT_EQ(goodbye.message,
            "the op aten::max_pool2d_with_indices_backward ended the worker process (SIGSEGV); "
            "this session and its tensors are lost");
  expect_works(bystander);
  RawClient next(server.port());
  EXPECT_EQ(next.greet().code, Code::kOk);
  expect_works(next);
}

TEST(OpServer, AKilledWorkerEndsNoOtherSession) {
  ServerProcess server;
  RawClient victim(server.port());
  (void)victim.greet();
  const std::vector<pid_t> workers = server.workers();
  ASSERT_EQ(workers.size(), 1u);
  RawClient bystander(server.port());
  (void)bystander.greet();
  kill(workers[0], SIGKILL);
  EXPECT_FALSE(victim.receive().has_value());  // The end of the connection.
  expect_works(bystander);
}

TEST(OpServer, SessionsShareNoHandlesAndRunAtOnce) {
  ServerProcess server;
  RawClient first(server.port());
  RawClient second(server.port());
  (void)first.greet();
  (void)second.greet();
  expect_works(first);
  BatchBuilder batch;
  batch.fetch(1, 3, 4);
  second.send_batch(batch.finish());
  EXPECT_NE(second.receive_goodbye().message.find("unknown handle 1"), std::string::npos);
  expect_works(first, 100);
}

TEST(OpServer, SigtermEndsSessionsAndExitsZero) {
  ServerProcess server;
  RawClient client(server.port());
  (void)client.greet();
  expect_works(client);
  const std::vector<pid_t> workers = server.workers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(server.terminate(), 0);
  EXPECT_NE(client.receive_goodbye().message.find("shutting down"), std::string::npos);
  EXPECT_NE(kill(workers[0], 0), 0);
}

TEST(OpServer, WorkersEndWithTheListener) {
  ServerProcess server;
  RawClient client(server.port());
  (void)client.greet();
  kill(server.pid(), SIGKILL);
  EXPECT_NE(client.receive_goodbye().message.find("shutting down"), std::string::npos);
}

TEST(OpServer, AGoodbyeEndsTheWorker) {
  ServerProcess server;
  RawClient client(server.port());
  (void)client.greet();
  client.send_frame(wire::FrameKind::kGoodbye, 0, wire::encode(wire::Goodbye{}));
  EXPECT_FALSE(client.receive().has_value());
}

TEST(OpServer, MoreSessionsThanAllowedAreRefused) {
  ServerProcess server({"--max-sessions", "1"});
  RawClient first(server.port());
  (void)first.greet();
  RawClient second(server.port());
  second.send_bytes(wire::to_bytes(wire::Preamble{}));
  const wire::Goodbye goodbye = second.receive_goodbye();
  EXPECT_EQ(goodbye.code, Code::kExhausted);
  EXPECT_NE(goodbye.message.find("already has 1 session"), std::string::npos);
}

// ---- Clients that misbehave ---------------------------------------------------------------------

TEST(OpServer, HttpIsAnsweredWithAReason) {
  ServerProcess server;
  RawClient client(server.port());
  client.send_text("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser\r\n\r\n");
  EXPECT_EQ(client.receive_goodbye().code, Code::kInvalidArgument);
}

TEST(OpServer, AnotherProtocolVersionIsNamed) {
  ServerProcess server;
  RawClient client(server.port());
  wire::Preamble preamble;
  preamble.protocol_version = 77;
  client.send_bytes(wire::to_bytes(preamble));
  const std::string message = client.receive_goodbye().message;
  EXPECT_NE(message.find("77"), std::string::npos) << message;
  EXPECT_NE(message.find(std::to_string(wire::kProtocolVersion)), std::string::npos) << message;
}

TEST(OpServer, SilenceIsGivenUp) {
  ServerProcess server;
  RawClient client(server.port());
  EXPECT_NE(client.receive_goodbye().message.find("no preamble came"), std::string::npos);
}

TEST(OpServer, ResumingIsRefusedWithAReason) {
  ServerProcess server;
  RawClient client(server.port());
  wire::Hello hello = make_hello();
  hello.resume_session.resize(16, std::byte{1});
  const wire::HelloReply reply = client.greet(hello);
  EXPECT_EQ(reply.code, Code::kUnimplemented);
  EXPECT_NE(reply.message.find("cannot resume"), std::string::npos);
  client.shut_down_sending();
  EXPECT_FALSE(client.receive().has_value());
}

class OpServerSession : public ::testing::Test {
 protected:
  OpServerSession() { (void)client.greet(); }
  // The session ends with a reason that holds `part`, and the server goes on.
  void expect_ended(const std::string& part) {
    const wire::Goodbye goodbye = client.receive_goodbye();
    EXPECT_EQ(goodbye.code, Code::kInvalidArgument);
    EXPECT_NE(goodbye.message.find(part), std::string::npos) << goodbye.message;
    RawClient next(server.port());
    EXPECT_EQ(next.greet().code, Code::kOk);
  }
  ServerProcess server;
  RawClient client{server.port()};
  BatchBuilder batch;
};

TEST_F(OpServerSession, WrongSequence) {
  batch.allocate(1, 4);
  client.next_sequence = 2;
  client.send_batch(batch.finish());
  expect_ended("batch 2 came where batch 1 was due");
}

TEST_F(OpServerSession, OversizeBody) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kBatch);
  header.sequence = 1;
  header.body_size_bytes = 0xffffffff;
  client.send_bytes(wire::to_bytes(header));
  expect_ended("");
}

TEST_F(OpServerSession, UnknownKind) {
  wire::FrameHeader header;
  header.kind = 99;
  client.send_bytes(wire::to_bytes(header));
  expect_ended("");
}

TEST_F(OpServerSession, AFrameThatOnlyServersSend) {
  client.send_frame(wire::FrameKind::kAck, 1, {});
  expect_ended("a client sends no frame of kind 4");
}

TEST_F(OpServerSession, ABodyThatIsNoBatch) {
  const std::vector<std::byte> garbage(100, std::byte{0x5a});
  client.send_frame(wire::FrameKind::kBatch, 1, garbage);
  expect_ended("");
}

TEST_F(OpServerSession, PayloadThatTheBatchDoesNotKnow) {
  batch.allocate(1, 4);
  BatchBuilder::Built built = batch.finish();
  built.segments.push_back(std::vector<std::byte>(8));
  client.send_batch(built);
  expect_ended("disagree about the payload");
}

TEST_F(OpServerSession, UnknownHandle) {
  batch.upload<float>(1, {1}).fetch(1, 8, 4).fetch(2, 9, 4);
  client.send_batch(batch.finish());
  expect_ended("unknown handle 2");
}

TEST_F(OpServerSession, TruncatedFrame) {
  batch.allocate(1, 4);
  BatchBuilder::Built built = batch.finish();
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kBatch);
  header.sequence = 1;
  header.body_size_bytes = static_cast<uint32_t>(built.body.size());
  client.send_bytes(wire::to_bytes(header));
  client.send_bytes(std::span(built.body).first(10));
  client.shut_down_sending();
  EXPECT_FALSE(client.receive().has_value());
  RawClient next(server.port());
  EXPECT_EQ(next.greet().code, Code::kOk);
}

TEST_F(OpServerSession, BatchesAreAcknowledged) {
  for (int i = 0; i < 100; ++i) {
    batch.allocate(static_cast<Handle>(i + 1), 4);
    client.send_batch(batch.finish());
  }
  uint64_t applied = 0;
  while (applied < 100) {
    const std::optional<Frame> frame = client.receive();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->header.kind, static_cast<uint16_t>(wire::FrameKind::kAck));
    EXPECT_GT(frame->header.sequence, applied);
    applied = frame->header.sequence;
  }
  EXPECT_EQ(applied, 100u);
}

TEST_F(OpServerSession, LargePayloadsComeBackAsTheyWere) {
  std::vector<float> values(5'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  batch.upload<float>(1, values).fetch(1, 3, values.size() * sizeof(float));
  client.send_batch(batch.finish());
  std::vector<std::byte> payload;
  EXPECT_FALSE(client.receive_reply(&payload).failed);
  EXPECT_EQ(floats(payload), values);
}

TEST_F(OpServerSession, RepliesTellBusyAndIdleTimes) {
  expect_works(client);
  BatchBuilder last;
  last.sync(90);
  client.send_batch(last.finish());
  const wire::Reply reply = client.receive_reply();
  EXPECT_GT(reply.server_busy_ns, 0u);
  EXPECT_GT(reply.server_idle_ns, 0u);
}

}  // namespace
}  // namespace rgpu::server::testing
