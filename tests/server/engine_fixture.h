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
#include "tests/server/recording_sink.h"

namespace rgpu::server::testing {

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
