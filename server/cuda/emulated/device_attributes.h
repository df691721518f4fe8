// The attributes that an emulated device reports, by the numbers of CUdevice_attribute.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace rgpu::server::cuda {

// `compute_capability`: 89 is 8.9. Attributes of what is not emulated (textures, managed memory,
// clusters) are 0.
[[nodiscard]] std::vector<int32_t> device_attributes(uint32_t device, uint32_t compute_capability);

// What the emulated device's launches and clocks hold to.
inline constexpr uint32_t kMultiprocessors = 16;
inline constexpr uint32_t kThreadsPerBlockMax = 1024;
inline constexpr uint32_t kThreadsPerMultiprocessor = 1536;
inline constexpr uint32_t kBlocksPerMultiprocessorMax = 24;
inline constexpr uint32_t kSharedSizeBytes = 48u << 10;       // Of a block, without asking.
inline constexpr uint32_t kSharedOptInSizeBytes = 99u << 10;  // Of a block, at most.
inline constexpr uint32_t kSharedPerMultiprocessorSizeBytes = 100u << 10;
inline constexpr uint32_t kClockKhz = 1'500'000;

}  // namespace rgpu::server::cuda
