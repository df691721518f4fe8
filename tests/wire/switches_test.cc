// Numerics switches are taken from the network only if PyTorch can have had them.

#include "wire/switches.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace rgpu::wire {
namespace {

Switches plausible() {
  Switches switches;
  switches.flags = Switches::kAllFlags;
  switches.cudnn_benchmark_limit = 10;
  switches.float32_matmul_precision = 2;
  switches.fp16_reduction = 1;
  switches.bf16_reduction = 2;
  switches.sdp_priority = {1, 2, 0, 3, 4};
  switches.float32_precision = {0, 1, 2, 3, 0, 1, 2, 3, 0};
  return switches;
}

Result<Switches> decoded(const Switches& switches) {
  std::array<std::byte, sizeof(Switches) + 1> bytes{};  // Unaligned.
  std::memcpy(bytes.data() + 1, &switches, sizeof switches);
  return decode_switches(std::span(bytes).subspan<1>());
}

TEST(Switches, RoundTrip) {
  const Result<Switches> back = decoded(plausible());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, plausible());
}

TEST(Switches, AnyOneValueOutOfRangeIsRefused) {
  const std::function<void(Switches&)> breaks[] = {
      [](Switches& s) { s.flags |= 1u << 19; },
      [](Switches& s) { s.flags |= 1u << 31; },
      [](Switches& s) { s.cudnn_benchmark_limit = Switches::kBenchmarkLimitMax + 1; },
      [](Switches& s) { s.float32_matmul_precision = 3; },
      [](Switches& s) { s.fp16_reduction = 3; },
      [](Switches& s) { s.bf16_reduction = 255; },
      [](Switches& s) { s.sdp_priority[4] = 5; },
      [](Switches& s) { s.sdp_priority[4] = 3; },
      [](Switches& s) { s.float32_precision[8] = 4; },
      [](Switches& s) { s.float32_precision[0] = 200; },
      [](Switches& s) { s.reserved[6] = 1; },
  };
  for (const auto& spoil : breaks) {
    Switches spoiled = plausible();
    spoil(spoiled);
    const Result<Switches> back = decoded(spoiled);
    ASSERT_FALSE(back.has_value()) << &spoil - breaks;
    EXPECT_EQ(back.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(back.error().message().rfind("switches: ", 0), 0u);
  }
}

}  // namespace
}  // namespace rgpu::wire
