// The structs that the real driver gives to CUDA, against the API's model.

#include "server/cuda/real/driver_symbols.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "cuda_shim/generated/cuda_api.h"
#include "server/cuda/driver.h"

namespace rgpu::server::cuda {
namespace {

TEST(DriverSymbols, StructsAreLaidOutAsCudas) {
  static_assert(sizeof(CuLocation) == sizeof(CUmemLocation));
  static_assert(offsetof(CuLocation, device) == offsetof(CUmemLocation, id));
  static_assert(sizeof(CuMemoryProperties) == sizeof(CUmemAllocationProp));
  static_assert(offsetof(CuMemoryProperties, location) == offsetof(CUmemAllocationProp, location));
  static_assert(offsetof(CuMemoryProperties, compression) ==
                offsetof(CUmemAllocationProp, allocFlags));
  static_assert(sizeof(CuAccess) == sizeof(CUmemAccessDesc));
  static_assert(offsetof(CuAccess, flags) == offsetof(CUmemAccessDesc, flags));
  static_assert(sizeof(CuUuid) == sizeof(CUuuid));
  static_assert(sizeof(CuCopy3D) == sizeof(CUDA_MEMCPY3D));
  static_assert(sizeof(CuCopy3D) == sizeof(CUDA_MEMCPY3D_PEER));
  constexpr size_t kTarget = offsetof(CuCopy3D, target);
  static_assert(kTarget == offsetof(CUDA_MEMCPY3D, dstXInBytes));
  static_assert(kTarget + offsetof(CuCopySide, memory_type) ==
                offsetof(CUDA_MEMCPY3D, dstMemoryType));
  static_assert(kTarget + offsetof(CuCopySide, host) == offsetof(CUDA_MEMCPY3D, dstHost));
  static_assert(kTarget + offsetof(CuCopySide, device) == offsetof(CUDA_MEMCPY3D, dstDevice));
  static_assert(kTarget + offsetof(CuCopySide, context) ==
                offsetof(CUDA_MEMCPY3D_PEER, dstContext));
  static_assert(kTarget + offsetof(CuCopySide, pitch_bytes) == offsetof(CUDA_MEMCPY3D, dstPitch));
  static_assert(kTarget + offsetof(CuCopySide, height) == offsetof(CUDA_MEMCPY3D, dstHeight));
  static_assert(offsetof(CuCopySide, pitch_bytes) == offsetof(CUDA_MEMCPY3D, srcPitch));
  static_assert(offsetof(CuCopy3D, width_bytes) == offsetof(CUDA_MEMCPY3D, WidthInBytes));
  static_assert(offsetof(CuCopy3D, depth) == offsetof(CUDA_MEMCPY3D, Depth));
}

TEST(DriverSymbols, NumbersAreCudas) {
  EXPECT_EQ(CuLocation{}.type, static_cast<int>(CU_MEM_LOCATION_TYPE_DEVICE));
  EXPECT_EQ(CuMemoryProperties{}.type, static_cast<int>(CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(CuAccess{}.flags, static_cast<int>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  EXPECT_EQ(kCuMemoryHost, static_cast<int>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(kCuMemoryDevice, static_cast<int>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(kCuStreamNonBlocking, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(kCuEventBlockingSync, static_cast<unsigned>(CU_EVENT_BLOCKING_SYNC));
  EXPECT_EQ(kCuEventDisableTiming, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(kCuHostAllocPortable, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
  EXPECT_EQ(kCuJitErrorLog, static_cast<int>(CU_JIT_ERROR_LOG_BUFFER));
  EXPECT_EQ(kCuJitErrorLogSizeBytes, static_cast<int>(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(cu_stream_legacy()),
            reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(static_cast<int>(kOutOfMemory), static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
}

}  // namespace
}  // namespace rgpu::server::cuda
