#include "server/input_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace rgpu::server {
namespace {

std::vector<std::byte> pattern(size_t size_bytes, size_t seed) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>((i * 7 + seed) >> 1);
  return bytes;
}

// As the socket would, in one piece.
const std::byte* receive(InputBuffer& input, const std::vector<std::byte>& bytes) {
  const std::span<std::byte> room = input.room(bytes.size());
  EXPECT_GE(room.size(), bytes.size());
  std::ranges::copy(bytes, room.begin());
  input.received(bytes.size());
  return room.data();
}

bool holds(const Body& body, const std::vector<std::byte>& expected) {
  return std::ranges::equal(body.bytes(), expected);
}

bool is_aligned(const Body& body) {
  return reinterpret_cast<uintptr_t>(body.bytes().data()) % 8 == 0;
}

TEST(InputBuffer, ABodyStaysWhereItWasReceived) {
  InputBuffer input;
  const std::vector<std::byte> bytes = pattern(4096, 1);
  const std::byte* const start = receive(input, bytes);
  const Body body = input.take_body(bytes.size());
  EXPECT_EQ(body.bytes().data(), start);
  EXPECT_TRUE(holds(body, bytes));
  EXPECT_EQ(input.size_bytes(), 0u);
}

TEST(InputBuffer, WhatIsReceivedLaterLeavesBodiesAlone) {
  InputBuffer input;
  std::vector<Body> bodies;
  for (size_t i = 0; i < 500; ++i) {  // Several blocks.
    receive(input, pattern(4000, i));
    bodies.push_back(input.take_body(4000));
  }
  for (size_t i = 0; i < bodies.size(); ++i) EXPECT_TRUE(holds(bodies[i], pattern(4000, i)));
}

TEST(InputBuffer, AMisalignedBodyIsAlignedByACopy) {
  InputBuffer input;
  std::vector<std::byte> bytes = pattern(3, 0);
  const std::vector<std::byte> second = pattern(800, 5);
  bytes.insert(bytes.end(), second.begin(), second.end());
  receive(input, bytes);
  std::vector<std::byte> first(3);
  EXPECT_EQ(input.take(first), 3u);
  EXPECT_EQ(first, pattern(3, 0));
  const Body body = input.take_body(second.size());
  EXPECT_TRUE(is_aligned(body));
  EXPECT_TRUE(holds(body, second));
}

TEST(InputBuffer, TheNextReadAfterAnOddPayloadIsAlignedAgain) {
  InputBuffer input;
  receive(input, pattern(3, 0));
  std::vector<std::byte> target(10);
  EXPECT_EQ(input.take(target), 3u);
  const std::byte* const start = receive(input, pattern(64, 1));
  EXPECT_EQ(input.take_body(64).bytes().data(), start);
}

TEST(InputBuffer, ABodyThatABlocksEndCutsIsInOnePiece) {
  InputBuffer input;
  for (const size_t size_bytes : {size_t{100'000}, size_t{3} << 20}) {
    const std::vector<std::byte> bytes = pattern(size_bytes, 3);
    for (size_t at = 0; at < bytes.size();) {
      const std::span<std::byte> room = input.room(bytes.size());
      const size_t part = std::min({bytes.size() - at, room.size(), size_t{50'001}});
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), part, room.begin());
      input.received(part);
      at += part;
    }
    const Body body = input.take_body(bytes.size());
    EXPECT_TRUE(is_aligned(body));
    EXPECT_TRUE(holds(body, bytes));
  }
}

TEST(InputBuffer, BodiesOutliveTheBuffer) {
  Body body;
  {
    InputBuffer input;
    receive(input, pattern(100, 2));
    body = input.take_body(100);
  }
  EXPECT_TRUE(holds(body, pattern(100, 2)));
}

TEST(BlockPool, ABlockComesBackWithItsLastUser) {
  BlockPool pool;
  std::shared_ptr<std::byte[]> first = pool.take(100);
  std::shared_ptr<std::byte[]> also = first;
  const std::byte* const start = first.get();
  first.reset();
  EXPECT_NE(pool.take(100).get(), start);
  also.reset();
  EXPECT_EQ(pool.take(100).get(), start);
}

}  // namespace
}  // namespace rgpu::server
