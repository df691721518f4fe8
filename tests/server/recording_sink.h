// RecordingSink: an engine's sink that remembers what it was given.
//
// Threading: any thread. Errors: take() fails the test when nothing comes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/engine.h"

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

}  // namespace rgpu::server::testing
