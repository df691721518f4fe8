#include "server/cuda/emulated/device_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "wire/cuda/calls.h"

namespace rgpu::server::cuda {
namespace {

constexpr uint64_t kRange = uint64_t{1} << 30;
constexpr uint64_t kSize = uint64_t{64} << 20;

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest()
      : base_(reinterpret_cast<uint64_t>(
            mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        memory_(base_, kRange, kSize) {}
  ~DeviceMemoryTest() override { munmap(reinterpret_cast<void*>(base_), kRange); }

  const uint64_t base_;
  DeviceMemory memory_;
};

TEST_F(DeviceMemoryTest, AnAllocationIsReadableMemoryAndIsFound) {
  ASSERT_TRUE(memory_.allocate_at(base_ + 512, 1000).ok());
  std::memset(reinterpret_cast<void*>(base_ + 512), 7, 1000);
  EXPECT_EQ(memory_.find(base_ + 512).begin, base_ + 512);
  EXPECT_EQ(memory_.find(base_ + 1511).end, base_ + 1512);
  EXPECT_EQ(memory_.find(base_ + 1512).begin, memory_.find(base_ + 1512).end);
  EXPECT_EQ(memory_.find(base_ + 511).begin, memory_.find(base_ + 511).end);
  EXPECT_TRUE(memory_.holds(base_ + 600, 912));
  EXPECT_FALSE(memory_.holds(base_ + 600, 913));
  EXPECT_EQ(memory_.free_size_bytes(), kSize - 1000);
}

TEST_F(DeviceMemoryTest, NeighboursOnAPageKeepTheirBytes) {
  ASSERT_TRUE(memory_.allocate_at(base_, 512).ok());
  ASSERT_TRUE(memory_.allocate_at(base_ + 512, 512).ok());
  ASSERT_TRUE(memory_.allocate_at(base_ + 1024, 8192).ok());
  std::memset(reinterpret_cast<void*>(base_), 3, 512);
  const uint64_t epoch = memory_.epoch();
  ASSERT_TRUE(memory_.free_at(base_ + 1024).ok());
  ASSERT_TRUE(memory_.free_at(base_ + 512).ok());
  EXPECT_NE(memory_.epoch(), epoch);
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(base_ + 511), 3);
}

TEST_F(DeviceMemoryTest, WhatOverlapsOrLiesOutsideIsRefused) {
  ASSERT_TRUE(memory_.allocate_at(base_ + 4096, 4096).ok());
  EXPECT_EQ(memory_.allocate_at(base_ + 4096, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory_.allocate_at(base_ + 8191, 10).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory_.allocate_at(base_, 4097).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory_.allocate_at(base_ - 4096, 4096).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory_.allocate_at(base_ + wire::cuda::client_part_size_bytes(kRange), 16).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(memory_.allocate_at(base_ + 16384, 0).code(), Code::kInvalidArgument);
  EXPECT_EQ(memory_.free_at(base_ + 4097).code(), Code::kInvalidArgument);
}

TEST_F(DeviceMemoryTest, NoMoreThanTheDeviceHas) {
  ASSERT_TRUE(memory_.allocate_at(base_, kSize - 100).ok());
  EXPECT_EQ(memory_.allocate_at(base_ + 2 * kSize, 101).code(), Code::kExhausted);
  EXPECT_FALSE(memory_.allocate(101, 16));
  memory_.free_all();
  EXPECT_EQ(memory_.free_size_bytes(), kSize);
  EXPECT_TRUE(memory_.allocate_at(base_ + 2 * kSize, 101).ok());
}

TEST_F(DeviceMemoryTest, TheDevicesOwnPartIsAlignedAndUsedAgain) {
  const auto first = memory_.allocate(100, 256);
  const auto second = memory_.allocate(100, 256);
  ASSERT_TRUE(first && second);
  EXPECT_GE(*first, base_ + wire::cuda::client_part_size_bytes(kRange));
  EXPECT_EQ(*first % 256, 0u);
  EXPECT_EQ(*second % 256, 0u);
  EXPECT_GE(*second, *first + 100);
  EXPECT_TRUE(memory_.free(*first));
  EXPECT_FALSE(memory_.free(*first));
  EXPECT_FALSE(memory_.free(*second + 1));
  // As often as there is room for at once: what was freed serves again.
  for (int i = 0; i < 100; ++i) {
    const auto large = memory_.allocate(kSize / 2, 16);
    ASSERT_TRUE(large) << large.error().message();
    EXPECT_TRUE(memory_.free(*large));
  }
}

}  // namespace
}  // namespace rgpu::server::cuda
