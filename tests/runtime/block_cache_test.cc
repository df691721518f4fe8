#include "runtime/block_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>

namespace rgpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(BlockCache, WhatWasGivenBackLastIsTakenFirst) {
  BlockCache cache(64 * kMiB);
  void* first = cache.take(2 * kMiB);
  void* second = cache.take(2 * kMiB);
  ASSERT_NE(first, second);
  std::memset(first, 1, 2 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  BlockCache::give(first);
  BlockCache::give(second);
  EXPECT_EQ(cache.take(2 * kMiB), second);
  EXPECT_EQ(cache.take(2 * kMiB), first);
  EXPECT_EQ(cache.kept_size_bytes(), 0u);
  BlockCache::give(first);
  BlockCache::give(second);
  cache.trim();
}

TEST(BlockCache, SizesThatNearlyRepeatShareABlockAndOthersDoNot) {
  BlockCache cache(64 * kMiB);
  void* block = cache.take(8 * kMiB);
  BlockCache::give(block);
  EXPECT_EQ(cache.take(8 * kMiB - 1000), block);
  BlockCache::give(block);
  void* other = cache.take(4 * kMiB);
  EXPECT_NE(other, block);
  BlockCache::give(other);
  cache.trim();
}

TEST(BlockCache, KeepsNoMoreThanItsBoundAndTheNewest) {
  BlockCache cache(5 * kMiB);
  void* blocks[4];
  for (void*& block : blocks) block = cache.take(2 * kMiB);
  for (void* block : blocks) BlockCache::give(block);
  EXPECT_GT(cache.kept_size_bytes(), 4 * kMiB);
  EXPECT_LE(cache.kept_size_bytes(), 5 * kMiB);
  EXPECT_EQ(cache.take(2 * kMiB), blocks[3]);
  EXPECT_EQ(cache.take(2 * kMiB), blocks[2]);
  BlockCache::give(blocks[2]);
  BlockCache::give(blocks[3]);
  void* large = cache.take(32 * kMiB);
  BlockCache::give(large);
  EXPECT_LE(cache.kept_size_bytes(), 5 * kMiB);
  cache.trim();
  EXPECT_EQ(cache.kept_size_bytes(), 0u);
}

TEST(BlockCache, TellsItsOwnBlocksFromOtherPointers) {
  BlockCache cache(8 * kMiB);
  void* block = cache.take(kMiB);
  int other = 0;
  EXPECT_TRUE(cache.is_taken(block));
  EXPECT_FALSE(cache.is_taken(static_cast<std::byte*>(block) + 4096));
  EXPECT_FALSE(cache.is_taken(&other));
  BlockCache::give(block);
  EXPECT_FALSE(cache.is_taken(block));
  cache.trim();
}

TEST(BlockCache, NoMemoryIsNoBlockAndLetsGoOfWhatWasKept) {
  BlockCache cache(8 * kMiB);
  BlockCache::give(cache.take(kMiB));
  EXPECT_EQ(cache.take(size_t{1} << 50), nullptr);
  EXPECT_EQ(cache.kept_size_bytes(), 0u);
  EXPECT_EQ(cache.take(SIZE_MAX), nullptr);
}

TEST(BlockCache, TheClientsWorksInAForkedChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's own allocator is not safe in the child of a busy process";
#endif
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) BlockCache::give(client_blocks().take(kMiB));
  });
  for (int count = 0; count < 100; ++count) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // Of a child that waits for a lock nobody holds.
      BlockCache::give(client_blocks().take(kMiB));
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (status != 0) stop = true;
    EXPECT_EQ(status, 0);
    if (stop) break;
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace rgpu
