// The runtime API: devices.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/device_reset.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr unsigned kDeviceFlags =
    cudaDeviceScheduleMask | cudaDeviceMapHost | cudaDeviceLmemResizeToMax | cudaDeviceSyncMemops;

cudaError_t check_device(int ordinal) {
  RGPU_TRY(to_runtime(initialise()));
  return ordinal < 0 || ordinal >= device_count() ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t use_device(int ordinal) {
  RGPU_TRY(check_device(ordinal));
  choose_device(ordinal);
  Context& primary = primary_context(ordinal);
  primary.active = true;
  set_current(&primary);
  return to_runtime(connected_client()->sticky());
}

void fill_sizes(const Device& device, cudaDeviceProp& p) {
  const auto of = [&](int attribute) { return device.attribute(attribute); };
  const auto size_of = [&](int attribute) {
    return static_cast<size_t>(device.attribute(attribute));
  };
  p.totalGlobalMem = device.info.memory_size_bytes;
  p.sharedMemPerBlock = size_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  p.regsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  p.warpSize = of(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  p.memPitch = size_of(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  p.maxThreadsPerBlock = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    p.maxThreadsDim[i] = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
    p.maxGridSize[i] = of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
  }
  p.totalConstMem = size_of(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  p.major = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p.minor = of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p.textureAlignment = size_of(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  p.texturePitchAlignment = size_of(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
  p.surfaceAlignment = size_of(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT);
  p.multiProcessorCount = of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.maxThreadsPerMultiProcessor = of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p.maxBlocksPerMultiProcessor = of(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  p.sharedMemPerMultiprocessor = size_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p.regsPerMultiprocessor = of(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p.sharedMemPerBlockOptin = size_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p.reservedSharedMemPerBlock = size_of(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  p.memoryBusWidth = of(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  p.l2CacheSize = of(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p.persistingL2CacheMaxSize = of(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
  p.accessPolicyMaxWindowSize = of(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
}

void fill_capabilities(const Device& device, cudaDeviceProp& p) {
  const auto of = [&](int attribute) { return device.attribute(attribute); };
  p.integrated = of(CU_DEVICE_ATTRIBUTE_INTEGRATED);
  p.canMapHostMemory = of(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  p.concurrentKernels = of(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  p.ECCEnabled = of(CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
  p.pciBusID = of(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  p.pciDeviceID = of(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  p.pciDomainID = of(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  p.tccDriver = of(CU_DEVICE_ATTRIBUTE_TCC_DRIVER);
  p.asyncEngineCount = of(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  p.unifiedAddressing = of(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  p.streamPrioritiesSupported = of(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  p.globalL1CacheSupported = of(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED);
  p.localL1CacheSupported = of(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED);
  p.managedMemory = of(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  p.isMultiGpuBoard = of(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD);
  p.multiGpuBoardGroupID = of(CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID);
  p.hostNativeAtomicSupported = of(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
  p.pageableMemoryAccess = of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
  p.concurrentManagedAccess = of(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  p.computePreemptionSupported = of(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
  p.canUseHostPointerForRegisteredMem =
      of(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  p.cooperativeLaunch = of(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  p.pageableMemoryAccessUsesHostPageTables =
      of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
  p.directManagedMemAccessFromHost = of(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
  p.hostRegisterSupported = of(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  p.sparseCudaArraySupported = of(CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED);
  p.hostRegisterReadOnlySupported = of(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
  p.timelineSemaphoreInteropSupported =
      of(CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED);
  p.memoryPoolsSupported = of(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  p.gpuDirectRDMASupported = of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  p.deferredMappingCudaArraySupported =
      of(CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED);
  p.ipcEventSupported = of(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
  p.clusterLaunch = of(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
  p.unifiedFunctionPointers = of(CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS);
  p.deviceNumaConfig = of(CU_DEVICE_ATTRIBUTE_NUMA_CONFIG);
  p.deviceNumaId = of(CU_DEVICE_ATTRIBUTE_NUMA_ID);
  p.mpsEnabled = of(CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  p.hostNumaId = of(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
}

std::mutex valid_mutex;
std::vector<int> valid_devices;  // Of cudaSetValidDevices; empty: all. Guarded by valid_mutex.

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) noexcept {
  if (count == nullptr) return latch(cudaErrorInvalidValue);
  *count = 0;
  const CUresult code = initialise();
  if (code != CUDA_SUCCESS) return latch(code);
  *count = device_count();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) noexcept { return latch(use_device(ordinal)); }

cudaError_t cudaGetDevice(int* ordinal) noexcept {
  if (ordinal == nullptr) return latch(cudaErrorInvalidValue);
  if (const CUresult code = initialise(); code != CUDA_SUCCESS) return latch(code);
  *ordinal = chosen_device();
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int ordinal, unsigned int device_flags, unsigned int flags) noexcept {
  if (const cudaError_t code = check_device(ordinal); code != cudaSuccess) return latch(code);
  if ((flags & ~static_cast<unsigned>(cudaInitDeviceFlagsAreValid)) != 0) {
    return latch(cudaErrorInvalidValue);
  }
  Context& primary = primary_context(ordinal);
  primary.active = true;
  if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
    if ((device_flags & ~kDeviceFlags) != 0) return latch(cudaErrorInvalidValue);
    primary.flags = device_flags;
  }
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) noexcept {
  if (properties == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = check_device(ordinal); code != cudaSuccess) return latch(code);
  Device* device = nullptr;
  if (const CUresult code = find_device(ordinal, device); code != CUDA_SUCCESS) return latch(code);
  std::memset(properties, 0, sizeof *properties);
  std::snprintf(properties->name, sizeof properties->name, "%s", device->info.name.c_str());
  std::memcpy(&properties->uuid, device->info.uuid.data(), sizeof properties->uuid);
  fill_sizes(*device, *properties);
  fill_capabilities(*device, *properties);
  return cudaSuccess;
}

cudaError_t cudaChooseDevice(int* ordinal, const cudaDeviceProp* wanted) noexcept {
  if (ordinal == nullptr || wanted == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = check_device(0); code != cudaSuccess) return latch(code);
  // The device that has most of what was asked for.
  int best = 0;
  int best_points = -1;
  for (int i = 0; i < device_count(); ++i) {
    cudaDeviceProp has;
    if (const cudaError_t code = cudaGetDeviceProperties(&has, i); code != cudaSuccess) return code;
    const int points =
        (has.major > wanted->major || (has.major == wanted->major && has.minor >= wanted->minor)) +
        (has.totalGlobalMem >= wanted->totalGlobalMem) +
        (has.multiProcessorCount >= wanted->multiProcessorCount);
    if (points > best_points) {
      best = i;
      best_points = points;
    }
  }
  *ordinal = best;
  return cudaSuccess;
}

cudaError_t cudaSetValidDevices(int* ordinals, int count) noexcept {
  if (count < 0 || (count > 0 && ordinals == nullptr)) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = check_device(0); code != cudaSuccess) return latch(code);
  for (int i = 0; i < count; ++i) {
    if (const cudaError_t code = check_device(ordinals[i]); code != cudaSuccess) {
      return latch(code);
    }
  }
  {
    const std::lock_guard lock(valid_mutex);
    valid_devices.assign(ordinals, ordinals + count);
  }
  if (count > 0 && current() == nullptr) choose_device(ordinals[0]);
  return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) noexcept {
  if ((flags & ~kDeviceFlags) != 0) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = check_device(chosen_device()); code != cudaSuccess) {
    return latch(code);
  }
  primary_context(chosen_device()).flags = flags;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) noexcept {
  if (flags == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = check_device(chosen_device()); code != cudaSuccess) {
    return latch(code);
  }
  // Host memory may be mapped from the beginning where addresses are unified, says CUDA.
  *flags = primary_context(chosen_device()).flags | cudaDeviceMapHost;
  return cudaSuccess;
}

cudaError_t cudaDeviceReset() noexcept {
  if (const cudaError_t code = check_device(chosen_device()); code != cudaSuccess) {
    return latch(code);
  }
  Context& primary = primary_context(chosen_device());
  const CUresult code = reset_device(primary);
  primary.active = false;
  primary.flags = 0;
  if (current() == &primary) (void)pop();
  (void)last_error(true);
  return latch(code);
}

cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) noexcept {
  if (config == nullptr) return latch(cudaErrorInvalidValue);
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}

cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config) noexcept {
  return latch(config <= cudaSharedMemBankSizeEightByte ? cudaSuccess : cudaErrorInvalidValue);
}
