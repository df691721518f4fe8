// Switches: what PyTorch keeps for a whole process about how its kernels compute, as kSwitches
// carries it: all of it at once, so that records after it need no history.
//
// Threading: plain values.
// Errors:    decode_switches returns kInvalidArgument for what no client can have read from
// PyTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "wire/status.h"

namespace rgpu::wire {

struct Switches {
  enum Flags : uint32_t {
    kDeterministicAlgorithms = 1u << 0,
    kDeterministicWarnOnly = 1u << 1,
    kFillUninitializedMemory = 1u << 2,
    kCudnnEnabled = 1u << 3,
    kCudnnBenchmark = 1u << 4,
    kCudnnDeterministic = 1u << 5,
    kCudnnAllowTf32 = 1u << 6,
    kMkldnnEnabled = 1u << 7,
    kMkldnnDeterministic = 1u << 8,
    kNnpackEnabled = 1u << 9,
    kSdpFlash = 1u << 10,
    kSdpMemEfficient = 1u << 11,
    kSdpMath = 1u << 12,
    kSdpCudnn = 1u << 13,
    kSdpOverrideable = 1u << 14,
    kSdpMathReducedPrecision = 1u << 15,
    kFp16Accumulation = 1u << 16,
    kCpuFp16Reduction = 1u << 17,
    kFlushDenormal = 1u << 18,
    kAllFlags = (1u << 19) - 1,
  };
  // Rows of float32_precision.
  enum Float32 : uint8_t {
    kGeneric = 0,
    kCudaAll = 1,
    kCudaConv = 2,
    kCudaRnn = 3,
    kCudaMatmul = 4,
    kMkldnnAll = 5,
    kMkldnnConv = 6,
    kMkldnnRnn = 7,
    kMkldnnMatmul = 8,
    kFloat32Count = 9,
  };
  static constexpr uint32_t kBenchmarkLimitMax = 1u << 20;
  static constexpr uint8_t kMatmulPrecisionMax = 2;   // highest, high, medium
  static constexpr uint8_t kReductionMax = 2;         // at::CuBLASReductionOption's numbers.
  static constexpr uint8_t kFloat32PrecisionMax = 3;  // none, ieee, tf32, bf16
  static constexpr size_t kSdpBackends = 5;           // at::SDPBackend's numbers from 0.

  uint32_t flags = 0;
  uint32_t cudnn_benchmark_limit = 0;
  uint8_t float32_matmul_precision = 0;
  uint8_t fp16_reduction = 0;
  uint8_t bf16_reduction = 0;
  std::array<uint8_t, kSdpBackends> sdp_priority{};  // Each backend once, the first one first.
  std::array<uint8_t, kFloat32Count> float32_precision{};
  std::array<uint8_t, 7> reserved{};  // 0

  bool operator==(const Switches&) const = default;
};
static_assert(sizeof(Switches) == 32 && std::is_trivially_copyable_v<Switches>);

// `bytes` need no alignment.
[[nodiscard]] Result<Switches> decode_switches(std::span<const std::byte, sizeof(Switches)> bytes);

}  // namespace rgpu::wire
