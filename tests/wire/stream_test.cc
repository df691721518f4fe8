#include "wire/stream.h"

#include <gtest/gtest.h>

namespace rgpu::wire {
namespace {

TEST(Stream, ItsNumberSaysItsDevice) {
  EXPECT_EQ(stream_of(0, 0), 0u);
  EXPECT_EQ(stream_of(2, 5), 133u);  // The documented numbers: 64 a device.
  for (const uint32_t device : {0u, 1u, 63u, 127u}) {
    for (const uint32_t index : {0u, 1u, 32u, 63u}) {
      const uint32_t stream = stream_of(device, index);
      EXPECT_EQ(device_of_stream(stream), device);
      EXPECT_EQ(index_of_stream(stream), index);
      EXPECT_LT(stream, limits::kStreamsMax);
    }
  }
}

}  // namespace
}  // namespace rgpu::wire
