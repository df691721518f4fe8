#include "wire/switches.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace rgpu::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

Status broken(const std::string& what) { return {Code::kInvalidArgument, "switches: " + what}; }

bool is_order_of_all(std::array<uint8_t, Switches::kSdpBackends> backends) {
  std::sort(backends.begin(), backends.end());
  for (size_t i = 0; i < backends.size(); ++i) {
    if (backends[i] != i) return false;
  }
  return true;
}

}  // namespace

Result<Switches> decode_switches(std::span<const std::byte, sizeof(Switches)> bytes) {
  Switches switches;
  std::memcpy(&switches, bytes.data(), bytes.size());
  if ((switches.flags & ~uint32_t{Switches::kAllFlags}) != 0) return broken("unknown flags");
  if (switches.cudnn_benchmark_limit > Switches::kBenchmarkLimitMax) {
    return broken("the benchmark limit is over " + std::to_string(Switches::kBenchmarkLimitMax));
  }
  if (switches.float32_matmul_precision > Switches::kMatmulPrecisionMax ||
      std::max(switches.fp16_reduction, switches.bf16_reduction) > Switches::kReductionMax) {
    return broken("a precision is out of range");
  }
  if (!is_order_of_all(switches.sdp_priority)) return broken("no order of attention backends");
  for (const uint8_t precision : switches.float32_precision) {
    if (precision > Switches::kFloat32PrecisionMax) return broken("a precision is out of range");
  }
  if (switches.reserved != std::array<uint8_t, 7>{}) return broken("reserved bytes are not 0");
  return switches;
}

}  // namespace rgpu::wire
