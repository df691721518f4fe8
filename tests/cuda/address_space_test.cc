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

TEST(AddressSpace, ReservedAddressesAreNobodysUntilTheyAreReleased) {
  AddressSpace space(kBase, kSize, kSize);
  const uint64_t wanted = kBase + 64 * kMiB;
  EXPECT_EQ(space.reserve(8 * kMiB, 0, wanted), wanted);
  EXPECT_NE(space.reserve(8 * kMiB, 0, wanted), wanted) << "is taken, so another place";
  EXPECT_EQ(space.reserve(2 * kMiB, 64 * kMiB, 0) % (64 * kMiB), 0u);
  EXPECT_EQ(space.reserve(kSize, 0, 0), 0u);
  EXPECT_EQ(space.find(wanted).size_bytes, 0u) << "no memory there";
  EXPECT_FALSE(space.release(wanted, 4 * kMiB));
  EXPECT_TRUE(space.release(wanted, 8 * kMiB));
  EXPECT_FALSE(space.release(wanted, 8 * kMiB));
  EXPECT_EQ(space.reserve(8 * kMiB, 0, wanted), wanted);
}

TEST(AddressSpace, MappedMemoryIsAnAllocationOfItsOwnKind) {
  AddressSpace space(kBase, kSize, 16 * kMiB);
  const uint64_t range = space.reserve(16 * kMiB, 0, 0);
  ASSERT_NE(range, 0u);
  EXPECT_FALSE(space.map(range + 12 * kMiB, 8 * kMiB)) << "beyond the reservation";
  EXPECT_FALSE(space.map(kBase + kSize, 2 * kMiB));
  ASSERT_TRUE(space.map(range, 2 * kMiB));
  ASSERT_TRUE(space.map(range + 2 * kMiB, 4 * kMiB));
  EXPECT_FALSE(space.map(range + 4 * kMiB, 2 * kMiB)) << "in use";
  // One behind the other, they are as good as one.
  EXPECT_TRUE(space.holds(range + kMiB, 5 * kMiB));
  EXPECT_FALSE(space.holds(range + kMiB, 5 * kMiB + 1));
  EXPECT_FALSE(space.free(range));
  EXPECT_FALSE(space.release(range, 16 * kMiB)) << "something is mapped";
  EXPECT_TRUE(space.unmap(range));
  EXPECT_FALSE(space.unmap(range));
  EXPECT_TRUE(space.unmap(range + 2 * kMiB));
  EXPECT_TRUE(space.release(range, 16 * kMiB));
}

TEST(AddressSpace, AllocationsSideBySideAreNotOne) {
  AddressSpace space(kBase, kSize, kSize);
  const uint64_t first = space.allocate(512);
  const uint64_t second = space.allocate(512);
  ASSERT_EQ(second, first + 512);
  EXPECT_TRUE(space.holds(first, 512));
  EXPECT_FALSE(space.holds(first, 513));
}

TEST(AddressSpace, MemoryWithoutAnAddressCounts) {
  AddressSpace space(kBase, kSize, 10 * kMiB);
  EXPECT_TRUE(space.take(6 * kMiB));
  EXPECT_FALSE(space.take(6 * kMiB));
  EXPECT_EQ(space.allocate(6 * kMiB), 0u);
  space.give_back(6 * kMiB);
  EXPECT_NE(space.allocate(6 * kMiB), 0u);
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
