// Launches: checked here, packed as the kernel's layout has it, and appended.
//
// Threading: any thread. Cost: a fraction of a microsecond; no allocation up to 4 KiB of
// parameters. Errors:    CUresult; kInvalidConfiguration stands for what the runtime has a number
// of its own for.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/modules.h"

namespace rgpu::cuda {

// cudaErrorInvalidConfiguration; the driver says CUDA_ERROR_INVALID_VALUE.
inline constexpr auto kInvalidConfiguration = static_cast<CUresult>(9);

struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  size_t dynamic_shared_size_bytes = 0;
  bool cooperative = false;
};

// What a launch configuration's attributes ask for; those that are hints are left out. Events,
// clusters and what else is not emulated: CUDA_ERROR_NOT_SUPPORTED.
[[nodiscard]] CUresult read_launch_attributes(std::span<const CUlaunchAttribute> attributes,
                                              LaunchShape& shape);

// `parameters`: a pointer to each parameter's value. They are copied before it returns.
[[nodiscard]] CUresult launch(const Calling& calling, Kernel& kernel, const LaunchShape& shape,
                              void* const* parameters, Stream& stream);
// All parameters in one piece (CU_LAUNCH_PARAM_BUFFER_POINTER).
[[nodiscard]] CUresult launch(const Calling& calling, Kernel& kernel, const LaunchShape& shape,
                              std::span<const std::byte> parameters, Stream& stream);

}  // namespace rgpu::cuda
