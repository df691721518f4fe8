// The real executable: sessions, their isolation, and clients that misbehave.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

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

}  // namespace
}  // namespace rgpu::server::testing
