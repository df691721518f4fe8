// EngineFixture: a TorchEngine in this process, driven batch by batch, with a sink that remembers.
//
// apply() returns when the batch was decoded; with one stream it was then executed as well.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/torch/torch_engine.h"
#include "tests/server/incoming.h"

namespace rgpu::server::testing {

class RecordingSink final : public EngineSink {
 public:
  struct Received {
    wire::Reply reply;
    std::vector<std::byte> payload;
  };

  void complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) override {
    const std::lock_guard lock(mutex_);
    applied_ = std::max(applied_, applied_sequence);
    for (OutgoingReply& reply : replies) {
      std::vector<std::byte> payload(reply.payload.begin(), reply.payload.end());
      received_[reply.reply.request] = {std::move(reply.reply), std::move(payload)};
      if (hold_payloads) held.push_back(std::move(reply));
    }
    changed_.notify_all();
  }
  void failed(Status reason) override {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(reason);
    changed_.notify_all();
  }

  // Waits for it, and takes it.
  Received take(uint64_t request) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(20),
                                        [&] { return received_.contains(request) || failure_; });
    EXPECT_TRUE(came && received_.contains(request)) << (failure_ ? failure_->message() : "");
    Received taken = std::move(received_[request]);
    received_.erase(request);
    return taken;
  }
  std::optional<Status> failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  uint64_t applied() {
    const std::lock_guard lock(mutex_);
    return applied_;
  }

  bool hold_payloads = false;  // As if the network had not sent them yet.
  std::vector<OutgoingReply> held;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Received> received_;
  std::optional<Status> failure_;
  uint64_t applied_ = 0;
};

class EngineFixture : public ::testing::Test {
 protected:
  explicit EngineFixture(const TorchEngineOptions& options = {.threads = 1})
      : engine_(make_torch_engine(options, {sink, clock_})) {
    wire::Hello hello;
    hello.torch_version = "2.9.9";
    EXPECT_TRUE(engine_->greet(hello).ok());
  }

  void apply(uint32_t stream = 0) {
    engine_->apply(incoming(*engine_, batch.finish(), ++sequence_, stream));
  }

  template <typename T>
  std::vector<T> fetch(Handle handle, size_t count) {
    batch.fetch(handle, 1000, count * sizeof(T));
    apply();
    const RecordingSink::Received received = sink.take(1000);
    EXPECT_FALSE(received.reply.failed) << received.reply.error.message;
    std::vector<T> values(received.payload.size() / sizeof(T));
    if (!values.empty()) {
      std::memcpy(values.data(), received.payload.data(), received.payload.size());
    }
    return values;
  }
  wire::Reply fetch_error(Handle handle) {
    batch.fetch(handle, 1000, 4);
    apply();
    wire::Reply reply = sink.take(1000).reply;
    EXPECT_TRUE(reply.failed);
    return reply;
  }
  wire::Reply sync() {
    batch.sync(1001);
    apply();
    return sink.take(1001).reply;
  }
  // The session ended, and says `part`.
  void expect_ended(const std::string& part) {
    const std::optional<Status> failure = sink.failure();
    ASSERT_TRUE(failure.has_value()) << "no failure: " << part;
    EXPECT_EQ(failure->code(), Code::kInvalidArgument);
    EXPECT_NE(failure->message().find(part), std::string::npos) << failure->message();
  }

  RecordingSink sink;
  BatchBuilder batch;

 private:
  WorkClock clock_;
  std::unique_ptr<Engine> engine_;
  uint64_t sequence_ = 0;
};

}  // namespace rgpu::server::testing
