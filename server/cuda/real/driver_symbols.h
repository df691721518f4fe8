// DriverSymbols: the functions of NVIDIA's libcuda.so.1 that the real driver calls, found by name,
// so that building needs no CUDA header and running needs no GPU.
//
// Threading: plain values; what the functions allow.
// Lifetime:  the library stays loaded for ever.
// Errors:    kUnimplemented when there is no such library, it is our own, or it lacks a function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/status.h"

namespace rgpu::server::cuda {

// Handles and structs, as 64-bit Linux has them. A test holds them against the API's model.
using CuContext = struct CuContextOpaque*;
using CuStream = struct CuStreamOpaque*;
using CuEvent = struct CuEventOpaque*;
using CuModule = struct CuModuleOpaque*;
using CuFunction = struct CuFunctionOpaque*;
using CuMemory = uint64_t;
using CuHostFunction = void (*)(void*);

struct CuLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
};
struct CuMemoryProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  CuLocation location;
  void* windows_data = nullptr;
  unsigned char compression = 0;
  unsigned char rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct CuAccess {
  CuLocation location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
struct CuUuid {
  unsigned char bytes[16];
};

inline constexpr int kCuMemoryHost = 1;
inline constexpr int kCuMemoryDevice = 2;
struct CuCopySide {
  size_t x_bytes = 0;
  size_t y = 0;
  size_t z = 0;
  size_t lod = 0;
  int memory_type = kCuMemoryDevice;
  void* host = nullptr;
  uint64_t device = 0;
  void* array = nullptr;
  CuContext context = nullptr;  // Of copies between devices.
  size_t pitch_bytes = 0;
  size_t height = 0;
};
struct CuCopy3D {  // Of copies on one device and between two: they have one layout.
  CuCopySide source;
  CuCopySide target;
  size_t width_bytes = 0;
  size_t height = 0;
  size_t depth = 0;
};

inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventBlockingSync = 1;
inline constexpr unsigned kCuEventDisableTiming = 2;
inline constexpr unsigned kCuHostAllocPortable = 1;
inline constexpr int kCuJitErrorLog = 5;
inline constexpr int kCuJitErrorLogSizeBytes = 6;
inline CuStream cu_stream_legacy() { return reinterpret_cast<CuStream>(uintptr_t{1}); }

// Our name, the driver's, its parameters.
#define RGPU_DRIVER_SYMBOLS(X)                                                                    \
  X(init, cuInit, (unsigned))                                                                     \
  X(driver_version, cuDriverGetVersion, (int*))                                                   \
  X(device_count, cuDeviceGetCount, (int*))                                                       \
  X(device_get, cuDeviceGet, (int*, int))                                                         \
  X(device_name, cuDeviceGetName, (char*, int, int))                                              \
  X(device_uuid, cuDeviceGetUuid_v2, (CuUuid*, int))                                              \
  X(device_memory, cuDeviceTotalMem_v2, (size_t*, int))                                           \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, int))                                     \
  X(device_can_access_peer, cuDeviceCanAccessPeer, (int*, int, int))                              \
  X(retain_context, cuDevicePrimaryCtxRetain, (CuContext*, int))                                  \
  X(release_context, cuDevicePrimaryCtxRelease_v2, (int))                                         \
  X(set_context, cuCtxSetCurrent, (CuContext))                                                    \
  X(synchronize, cuCtxSynchronize, ())                                                            \
  X(set_limit, cuCtxSetLimit, (int, size_t))                                                      \
  X(memory_info, cuMemGetInfo_v2, (size_t*, size_t*))                                             \
  X(granularity, cuMemGetAllocationGranularity, (size_t*, const CuMemoryProperties*, int))        \
  X(reserve, cuMemAddressReserve, (uint64_t*, size_t, size_t, uint64_t, unsigned long long))      \
  X(unreserve, cuMemAddressFree, (uint64_t, size_t))                                              \
  X(create_memory, cuMemCreate,                                                                   \
    (CuMemory*, size_t, const CuMemoryProperties*, unsigned long long))                           \
  X(release_memory, cuMemRelease, (CuMemory))                                                     \
  X(map, cuMemMap, (uint64_t, size_t, size_t, CuMemory, unsigned long long))                      \
  X(unmap, cuMemUnmap, (uint64_t, size_t))                                                        \
  X(set_access, cuMemSetAccess, (uint64_t, size_t, const CuAccess*, size_t))                      \
  X(allocate_host, cuMemHostAlloc, (void**, size_t, unsigned))                                    \
  X(free_host, cuMemFreeHost, (void*))                                                            \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (uint64_t, const void*, size_t, CuStream))              \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, uint64_t, size_t, CuStream))                      \
  X(copy_on_device, cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, CuStream))                 \
  X(copy_3d, cuMemcpy3DAsync_v2, (const CuCopy3D*, CuStream))                                     \
  X(copy_3d_peer, cuMemcpy3DPeerAsync, (const CuCopy3D*, CuStream))                               \
  X(fill_8, cuMemsetD8Async, (uint64_t, unsigned char, size_t, CuStream))                         \
  X(fill_16, cuMemsetD16Async, (uint64_t, unsigned short, size_t, CuStream))                      \
  X(fill_32, cuMemsetD32Async, (uint64_t, unsigned, size_t, CuStream))                            \
  X(fill_2d_8, cuMemsetD2D8Async, (uint64_t, size_t, unsigned char, size_t, size_t, CuStream))    \
  X(fill_2d_16, cuMemsetD2D16Async, (uint64_t, size_t, unsigned short, size_t, size_t, CuStream)) \
  X(fill_2d_32, cuMemsetD2D32Async, (uint64_t, size_t, unsigned, size_t, size_t, CuStream))       \
  X(create_stream, cuStreamCreateWithPriority, (CuStream*, unsigned, int))                        \
  X(destroy_stream, cuStreamDestroy_v2, (CuStream))                                               \
  X(wait_event, cuStreamWaitEvent, (CuStream, CuEvent, unsigned))                                 \
  X(launch_host_function, cuLaunchHostFunc, (CuStream, CuHostFunction, void*))                    \
  X(create_event, cuEventCreate, (CuEvent*, unsigned))                                            \
  X(destroy_event, cuEventDestroy_v2, (CuEvent))                                                  \
  X(record_event, cuEventRecord, (CuEvent, CuStream))                                             \
  X(query_event, cuEventQuery, (CuEvent))                                                         \
  X(synchronize_event, cuEventSynchronize, (CuEvent))                                             \
  X(elapsed_time, cuEventElapsedTime, (float*, CuEvent, CuEvent))                                 \
  X(load_module, cuModuleLoadDataEx, (CuModule*, const void*, unsigned, int*, void**))            \
  X(unload_module, cuModuleUnload, (CuModule))                                                    \
  X(get_function, cuModuleGetFunction, (CuFunction*, CuModule, const char*))                      \
  X(get_global, cuModuleGetGlobal_v2, (uint64_t*, size_t*, CuModule, const char*))                \
  X(function_attribute, cuFuncGetAttribute, (int*, int, CuFunction))                              \
  X(set_function_attribute, cuFuncSetAttribute, (CuFunction, int, int))                           \
  X(launch, cuLaunchKernel,                                                                       \
    (CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream,  \
     void**, void**))                                                                             \
  X(launch_cooperative, cuLaunchCooperativeKernel,                                                \
    (CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream,  \
     void**))

// From 12.4 on; nullptr before.
#define RGPU_DRIVER_SYMBOLS_OPTIONAL(X)                                         \
  X(parameter_info, cuFuncGetParamInfo, (CuFunction, size_t, size_t*, size_t*)) \
  X(load_function, cuFuncLoad, (CuFunction))

struct DriverSymbols {
#define RGPU_DECLARE(name, symbol, parameters) int(*name) parameters = nullptr;
  RGPU_DRIVER_SYMBOLS(RGPU_DECLARE)
  RGPU_DRIVER_SYMBOLS_OPTIONAL(RGPU_DECLARE)
#undef RGPU_DECLARE
};

// From the system's libcuda.so.1, or the file that RGPU_CUDA_DRIVER_LIBRARY names, which may be our
// own: how the real driver is tested without a GPU.
[[nodiscard]] Result<DriverSymbols> load_driver_symbols();

}  // namespace rgpu::server::cuda
