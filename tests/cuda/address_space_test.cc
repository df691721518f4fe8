#include "cuda_shim/client/address_space.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace rgpu::cuda {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 40;
constexpr uint64_t kSize = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(AddressSpace, SmallAndLargeAreAlignedAsCudaDoes) {
  AddressSpace space(kBase, kSize, kSize);
  const uint64_t small = space.allocate(1);
  const uint64_t large = space.allocate(3 * kMiB);
  EXPECT_EQ(small % 512, 0u);
  EXPECT_EQ(large % (2 * kMiB), 0u);
  EXPECT_EQ(space.find(small).size_bytes, 1u);
  EXPECT_EQ(space.find(small + 1).size_bytes, 0u);
  EXPECT_EQ(space.find(large + 3 * kMiB - 1).address, large);
}

TEST(AddressSpace, NoMoreThanTheMemoryThatThereIs) {
  AddressSpace space(kBase, kSize, 10 * kMiB);
  const uint64_t first = space.allocate(6 * kMiB);
  ASSERT_NE(first, 0u);
  EXPECT_EQ(space.allocate(5 * kMiB), 0u);
  EXPECT_TRUE(space.free(first));
  EXPECT_NE(space.allocate(10 * kMiB), 0u);
  EXPECT_EQ(space.used_bytes(), 10 * kMiB);
}

TEST(AddressSpace, OnlyWhatBeginsThereIsFreed) {
  AddressSpace space(kBase, kSize, kSize);
  const uint64_t address = space.allocate(1000);
  EXPECT_FALSE(space.free(address + 512));
  EXPECT_TRUE(space.free(address));
  EXPECT_FALSE(space.free(address));
  space.add_foreign(kBase + kSize + 64, 16);
  EXPECT_EQ(space.find(kBase + kSize + 79).size_bytes, 16u);
  EXPECT_FALSE(space.free(kBase + kSize + 64));
}

TEST(AddressSpace, SerialsTellAnAllocationFromTheOneThatWasThere) {
  AddressSpace space(kBase, kSize, kSize);
  const uint64_t address = space.allocate(1000);
  const uint64_t serial = space.find(address).serial;
  EXPECT_TRUE(space.free(address));
  EXPECT_EQ(space.allocate(1000), address);
  EXPECT_NE(space.find(address).serial, serial);
}

TEST(AddressSpace, RandomUseNeverOverlapsAndEndsWhole) {
  AddressSpace space(kBase, kSize, kSize);
  std::mt19937 random(7);
  std::map<uint64_t, uint64_t> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() > 50 && random() % 2 == 0) {
      auto at = std::next(live.begin(), static_cast<long>(random() % live.size()));
      ASSERT_TRUE(space.free(at->first));
      live.erase(at);
      continue;
    }
    const uint64_t size = 1 + random() % (random() % 4 == 0 ? 4 * kMiB : 3000);
    const uint64_t address = space.allocate(size);
    if (address == 0) continue;
    const auto next = live.lower_bound(address);
    ASSERT_TRUE(next == live.end() || address + size <= next->first);
    ASSERT_TRUE(next == live.begin() || std::prev(next)->second <= address);
    ASSERT_GE(address, kBase);
    ASSERT_LE(address + size, kBase + kSize);
    live[address] = address + size;
  }
  for (const auto& [address, end] : live) ASSERT_TRUE(space.free(address));
  EXPECT_EQ(space.used_bytes(), 0u);
  EXPECT_NE(space.allocate(kSize), 0u);  // One block again.
}

}  // namespace
}  // namespace rgpu::cuda
