// SessionTest: a Session and the ScriptedServer it is connected to.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/session.h"
#include "tests/runtime/scripted_server.h"

namespace rgpu::testing {

constexpr uint32_t number(wire::Command command) { return static_cast<uint32_t>(command); }

// Gives up at the first time of asking.
class Impatient final : public WaitObserver {
 public:
  void before_wait() override { ++waits; }
  bool keep_waiting() override { return false; }
  int waits = 0;
};

// Memory that a session holds for a while; `released` is ready when it has let go of it.
class Watched {
 public:
  explicit Watched(size_t size_bytes, std::byte value = {})
      : memory_(std::make_shared<std::vector<std::byte>>(size_bytes, value)) {}
  [[nodiscard]] std::vector<std::byte>& bytes() { return *memory_; }
  // Once. The memory lives on with it when the test has ended.
  [[nodiscard]] std::shared_ptr<void> owner() {
    auto promise = std::make_shared<std::promise<void>>();
    released = promise->get_future();
    return {memory_->data(), [memory = memory_, promise](void*) { promise->set_value(); }};
  }
  [[nodiscard]] bool is_released() const {
    return released.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  std::future<void> released;

 private:
  std::shared_ptr<std::vector<std::byte>> memory_;
};

class SessionTest : public ::testing::Test {
 protected:
  void TearDown() override {
    server_.close();  // So that the session need not wait for it.
    session_.reset();
  }

  SessionOptions options(const std::string& policy = "sync") const {
    SessionOptions options;
    options.port = server_.port();
    options.flush_policy = policy;
    return options;
  }
  void connect(const SessionOptions& options) {
    Result<std::shared_ptr<Session>> session = Session::connect(options);
    if (!session) throw std::runtime_error(session.error().to_string());
    session_ = *std::move(session);
  }
  // Policy "sync" keeps everything back until a test asks for it.
  void start(const SessionOptions& options) {
    connect(options);
    server_.greet();
    if (!session_->server_info(observer_)) throw std::runtime_error("no handshake");
    waits_at_start_ = session_->stats().waits;
  }
  void start(const std::string& policy = "sync") { start(options(policy)); }

  Status allocate(Handle handle, uint32_t stream = 0) {
    return allocate(handle, stream, observer_);
  }
  Status allocate(Handle handle, uint32_t stream, WaitObserver& observer) {
    const uint64_t size_bytes = 64;
    const auto immediates = std::as_bytes(std::span(&size_bytes, 1));
    const Record record{number(wire::Command::kAllocate), 0, std::span(&handle, 1), immediates};
    return session_->append(stream, record, observer);
  }
  // A kFetch of handle 1 into `destination`; its request.
  uint64_t fetch(Destination destination) {
    const uint64_t size_bytes = destination.bytes.size();
    const Result<uint64_t> request = session_->new_request(std::move(destination));
    if (!request) throw std::runtime_error(request.error().to_string());
    const uint64_t words[] = {*request, 0, size_bytes};
    const Handle handle = 1;
    const Record record{number(wire::Command::kFetch), 0, std::span(&handle, 1),
                        std::as_bytes(std::span(words))};
    if (!session_->append(0, record, observer_)) throw std::runtime_error("append");
    return *request;
  }
  std::future<Result<wire::Reply>> wait_in_thread(uint64_t request) {
    return std::async(std::launch::async, [this, request] {
      WaitObserver observer;
      return session_->wait(request, observer);
    });
  }
  std::future<Result<wire::Reply>> sync_in_thread() {
    return std::async(std::launch::async, [this] {
      WaitObserver observer;
      return session_->sync(observer);
    });
  }
  static wire::Reply reply_to(uint64_t request, uint64_t payload_size_bytes = 0) {
    wire::Reply reply;
    reply.request = request;
    reply.payload_size_bytes = payload_size_bytes;
    return reply;
  }
  // Plays the server's part of a sync, which proves that the session works.
  void expect_sync_works() {
    auto synced = sync_in_thread();
    const ReceivedRecord sync = server_.read_until(wire::Command::kSync);
    server_.reply(reply_to(sync.word(0)));
    const Result<wire::Reply> result = synced.get();
    EXPECT_TRUE(result) << result.error().to_string();
  }

  ScriptedServer server_;
  WaitObserver observer_;
  std::shared_ptr<Session> session_;
  uint64_t waits_at_start_ = 0;
};

}  // namespace rgpu::testing
