#include "cuda_shim/client/launch.h"

#include <cstring>
#include <memory>

#include "cuda_shim/client/host_order.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kHeadSizeBytes = sizeof(wire::cuda::CallHeader) + sizeof(wire::cuda::Launch);
constexpr size_t kSmallSizeBytes = 4096;

CUresult check(const Device& device, const Kernel& kernel, const LaunchShape& shape) {
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; ++i) {
    const int axis = static_cast<int>(i);
    if (shape.grid[i] == 0 || shape.block[i] == 0 ||
        shape.grid[i] >
            static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis)) ||
        shape.block[i] >
            static_cast<uint32_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis))) {
      return kInvalidConfiguration;
    }
    threads *= shape.block[i];
  }
  if (threads >
      static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return kInvalidConfiguration;
  }
  if (threads > kernel.block_threads_max) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (shape.dynamic_shared_size_bytes >
      kernel.dynamic_shared_size_bytes_max.load(std::memory_order_relaxed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// All blocks of a cooperative launch must have room at once.
CUresult check_cooperative(const Device& device, Kernel& kernel, const LaunchShape& shape) {
  const uint32_t threads = shape.block[0] * shape.block[1] * shape.block[2];
  int blocks = 0;
  if (const CUresult code = cuOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, reinterpret_cast<CUfunction>(&kernel), static_cast<int>(threads),
          shape.dynamic_shared_size_bytes);
      code != CUDA_SUCCESS) {
    return code;
  }
  const auto room =
      static_cast<uint64_t>(blocks) *
      static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const uint64_t wanted = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  return wanted > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

// `fill(target)` writes the kernel's parameters.
template <typename Fill>
CUresult issue(const Calling& calling, Kernel& kernel, const LaunchShape& shape, Stream& stream,
               Fill fill) {
  if (stream.device != calling.device) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult code = check(*calling.device, kernel, shape); code != CUDA_SUCCESS) {
    return code;
  }
  if (shape.cooperative) {
    if (const CUresult code = check_cooperative(*calling.device, kernel, shape);
        code != CUDA_SUCCESS) {
      return code;
    }
  }
  if (const CUresult code = follow_blocking_copies(*calling.client, stream); code != CUDA_SUCCESS) {
    return code;
  }
  wire::cuda::Launch launch;
  if (const CUresult code = number_on(kernel, *calling.device, launch.function);
      code != CUDA_SUCCESS) {
    return code;
  }
  std::copy_n(shape.grid.begin(), 3, launch.grid);
  std::copy_n(shape.block.begin(), 3, launch.block);
  launch.dynamic_shared_size_bytes = static_cast<uint32_t>(shape.dynamic_shared_size_bytes);
  launch.flags = shape.cooperative ? wire::cuda::Launch::kCooperative : 0;
  const size_t size_bytes = kHeadSizeBytes + kernel.parameters_size_bytes;
  std::byte small[kSmallSizeBytes];
  std::unique_ptr<std::byte[]> large;
  std::byte* bytes = small;
  if (size_bytes > sizeof small) {
    large = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    bytes = large.get();
  }
  const wire::cuda::CallHeader header{static_cast<uint32_t>(size_bytes - sizeof header)};
  std::memcpy(bytes, &header, sizeof header);
  std::memcpy(bytes + sizeof header, &launch, sizeof launch);
  fill(bytes + kHeadSizeBytes);
  const CUresult code =
      calling.client->append_prepared(stream.number, Call::kLaunch, {bytes, size_bytes});
  if (code != CUDA_SUCCESS || !calling.client->launch_blocking()) return code;
  return synchronize(stream);
}

}  // namespace

CUresult read_launch_attributes(std::span<const CUlaunchAttribute> attributes, LaunchShape& shape) {
  for (const CUlaunchAttribute& attribute : attributes) {
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (attribute.value.clusterDim.x != 1 || attribute.value.clusterDim.y != 1 ||
            attribute.value.clusterDim.z != 1) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        break;
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult launch(const Calling& calling, Kernel& kernel, const LaunchShape& shape,
                void* const* parameters, Stream& stream) {
  if (parameters == nullptr && !kernel.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  return issue(calling, kernel, shape, stream, [&](std::byte* target) {
    uint32_t end = 0;
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      const KernelParameter& parameter = kernel.parameters[i];
      // Nothing of this process's memory is to travel in the gaps.
      if (end < parameter.offset_bytes) std::memset(target + end, 0, parameter.offset_bytes - end);
      std::byte* const at = target + parameter.offset_bytes;
      if (parameter.size_bytes == 8) {
        std::memcpy(at, parameters[i], 8);
      } else if (parameter.size_bytes == 4) {
        std::memcpy(at, parameters[i], 4);
      } else {
        std::memcpy(at, parameters[i], parameter.size_bytes);
      }
      end = parameter.offset_bytes + parameter.size_bytes;
    }
    if (end < kernel.parameters_size_bytes) {
      std::memset(target + end, 0, kernel.parameters_size_bytes - end);
    }
  });
}

CUresult launch(const Calling& calling, Kernel& kernel, const LaunchShape& shape,
                std::span<const std::byte> parameters, Stream& stream) {
  if (parameters.size() < kernel.parameters_size_bytes) return CUDA_ERROR_INVALID_VALUE;
  return issue(calling, kernel, shape, stream, [&](std::byte* target) {
    std::memcpy(target, parameters.data(), kernel.parameters_size_bytes);
  });
}

}  // namespace rgpu::cuda
