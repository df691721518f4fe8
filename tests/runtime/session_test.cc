// A Session against a server whose every step the test takes: what is sent, in what order, what a
// reply does. Policy "sync" keeps everything back until a test asks for it.
#include "runtime/session.h"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <numeric>
#include <thread>

#include "tests/runtime/scripted_server.h"

namespace rgpu {
namespace {

using testing::make_template;
using testing::ReceivedBatch;
using testing::ReceivedRecord;
using testing::ScriptedServer;
using wire::Command;

constexpr uint32_t number(Command command) { return static_cast<uint32_t>(command); }

SessionOptions options_for(const ScriptedServer& server, const std::string& policy) {
  SessionOptions options;
  options.port = server.port();
  options.flush_policy = policy;
  return options;
}

std::shared_ptr<Session> connect(const SessionOptions& options) {
  Result<std::shared_ptr<Session>> session = Session::connect(options);
  if (!session) throw std::runtime_error(session.error().to_string());
  return *session;
}

wire::Reply reply_to(uint64_t request) {
  wire::Reply reply;
  reply.request = request;
  return reply;
}

class SessionTest : public ::testing::Test {
 protected:
  void start(const std::string& policy) { start(options_for(server_, policy)); }
  void start(const SessionOptions& options) {
    session_ = connect(options);
    server_.greet();
  }
  Status allocate(uint32_t stream, Handle handle) {
    const uint64_t size_bytes = 64;
    const auto immediates = std::as_bytes(std::span(&size_bytes, 1));
    return session_->append(stream, {number(Command::kAllocate), 0, std::span(&handle, 1), immediates},
                            observer_);
  }
  std::future<Result<wire::Reply>> sync_in_thread() {
    return std::async(std::launch::async, [this] {
      WaitObserver observer;
      return session_->sync(observer);
    });
  }

  ScriptedServer server_;
  WaitObserver observer_;
  std::shared_ptr<Session> session_;
};

TEST_F(SessionTest, SyncSendsWhatWasAppendedAndReturnsTheReply) {
  start("sync");
  ASSERT_TRUE(allocate(0, 1).ok());
  ASSERT_TRUE(allocate(0, 2).ok());
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
  EXPECT_EQ(stats.waits, 1u);
  EXPECT_EQ(stats.stalls, 0u);
  EXPECT_EQ(stats.frames, 2u);
  EXPECT_EQ(stats.server_busy_ns, 7u);
}

}  // namespace
}  // namespace rgpu
