// An UploadFeed between a caller and a socket that the test plays: in whatever way the two meet,
// what is sent is what the caller's memory held, and the memory is the caller's again.
#include "runtime/upload_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

namespace rgpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::vector<std::byte> pattern(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t at = 0; at < size_bytes; ++at) {
    bytes[at] = static_cast<std::byte>((at * 2654435761u) >> 13);
  }
  return bytes;
}

bool always() { return true; }
bool never() { return false; }
void* no_memory() { return nullptr; }

// Sends all that is left.
std::vector<std::byte> drain(UploadFeed& feed) {
  std::vector<std::byte> sent;
  while (!feed.is_sent()) {
    feed.send([&](std::span<const std::byte> bytes) {
      sent.insert(sent.end(), bytes.begin(), bytes.end());
      return bytes.size();
    });
  }
  return sent;
}

TEST(UploadFeed, WithoutASenderTheCallerCopiesEverything) {
  const std::vector<std::byte> wanted = pattern(3 * kMiB + 12345);
  std::vector<std::byte> source = wanted;
  UploadFeed feed(source);
  EXPECT_FALSE(feed.is_handed_over());
  ASSERT_TRUE(feed.hand_over(always));
  EXPECT_TRUE(feed.is_handed_over());
  std::ranges::fill(source, std::byte{0});
  EXPECT_EQ(drain(feed), wanted);
}

TEST(UploadFeed, WhatIsSentBeforeTheCallerComesIsNotCopied) {
  const std::vector<std::byte> source = pattern(3 * kMiB);
  UploadFeed feed(source, &no_memory);
  EXPECT_EQ(drain(feed), source);
  EXPECT_TRUE(feed.hand_over(always));
}

TEST(UploadFeed, ASocketThatStopsAndGoesGetsEveryByteOnce) {
  const std::vector<std::byte> wanted = pattern(17 * kMiB + 1);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<std::byte> source = wanted;
    UploadFeed feed(source);
    std::vector<std::byte> sent;
    sent.reserve(wanted.size());
    std::thread sender([&] {
      std::mt19937 random(seed);
      while (!feed.is_sent()) {
        feed.send([&](std::span<const std::byte> bytes) {
          // Mostly all of it; the later the seed, the more often the socket is full.
          const size_t size = random() % 20 < seed ? random() % bytes.size() : bytes.size();
          sent.insert(sent.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
          return size;
        });
        if (random() % 4 == 0) std::this_thread::yield();
      }
    });
    EXPECT_TRUE(feed.hand_over(always));
    std::ranges::fill(source, std::byte{0});
    sender.join();
    ASSERT_TRUE(sent == wanted) << "seed " << seed;
  }
}

TEST(UploadFeed, WithoutMemoryAllMustBeSentFirst) {
  const std::vector<std::byte> source = pattern(2 * kMiB);
  UploadFeed feed(source, &no_memory);
  EXPECT_FALSE(feed.hand_over(always));
  EXPECT_FALSE(feed.is_handed_over());
  EXPECT_EQ(drain(feed), source);
  EXPECT_TRUE(feed.is_handed_over());
}

TEST(UploadFeed, AnEndedSessionEndsTheCopy) {
  const std::vector<std::byte> source = pattern(2 * kMiB);
  UploadFeed feed(source);
  EXPECT_FALSE(feed.hand_over(never));
  feed.abandon();
  EXPECT_TRUE(feed.is_abandoned());
  const auto send = [](std::span<const std::byte>) -> size_t {
    ADD_FAILURE();
    return 0;
  };
  EXPECT_EQ(feed.send(send), 0u);
}

}  // namespace
}  // namespace rgpu
