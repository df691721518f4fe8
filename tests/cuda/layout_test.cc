// The types that the generator wrote against the layout that libclang read: this compiles.
#include <gtest/gtest.h>

#include "cuda_shim/generated/cuda_api.h"
#include "cuda_shim/generated/layout_checks.inc"

namespace {

static_assert(sizeof(cudaDeviceProp) == 1008);
static_assert(sizeof(dim3) == 12);
static_assert(sizeof(CUipcMemHandle) == 64);
static_assert(alignof(CUtensorMap) == 128);
static_assert(CUDART_VERSION == 13000);
static_assert(static_cast<int>(cudaErrorIllegalAddress) == 700);

TEST(CudaTypes, SpecialStreamsAreTheVendorsNumbers) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY), 1u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD), 2u);
  EXPECT_EQ(cudaStreamPerThread, CU_STREAM_PER_THREAD);
}

}  // namespace
