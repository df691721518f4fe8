// cuGetProcAddress and cudaGetDriverEntryPoint, over a driver version of the test's own.
#include <gtest/gtest.h>

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/proc_addresses.h"

namespace {

int g_driver_version = 13000;

void* address_of(const char* symbol, int version, bool per_thread = false) {
  return rgpu::cuda::proc_address(symbol, version, per_thread).address;
}

}  // namespace

namespace rgpu::cuda {
cudaError_t to_runtime(CUresult code) noexcept { return static_cast<cudaError_t>(code); }
cudaError_t latch(cudaError_t code) noexcept { return code; }
}  // namespace rgpu::cuda

CUresult cuDriverGetVersion(int* version) noexcept {
  *version = g_driver_version;
  return CUDA_SUCCESS;
}

namespace {

TEST(EntryPoints, ANameHasTwoSignaturesOverTwoVersions) {
  void* before = nullptr;
  void* after = nullptr;
  auto status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  EXPECT_EQ(cuGetProcAddress_v2("cuCtxCreate", &before, 12040, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(cuGetProcAddress_v2("cuCtxCreate", &after, 13000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(before, address_of("cuCtxCreate_v3", 0));
  EXPECT_EQ(after, address_of("cuCtxCreate_v4", 0));
  EXPECT_NE(before, after);
}

TEST(EntryPoints, WhatIsNotFoundIsAStatusAndANullPointer) {
  void* function = &g_driver_version;
  auto status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cuGetProcAddress_v2("cuLaunchKernelEx", &function, 11000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cuGetProcAddress("cuNothing", &function, 11030, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress("cuInit", &function, 11030, 0), CUDA_SUCCESS);
}

TEST(EntryPoints, BadArgumentsAreInvalid) {
  void* function = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2(nullptr, &function, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &function, 13000, 4, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress(nullptr, nullptr, 13000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &function, ~0u, 0, nullptr),
            cudaErrorInvalidValue);
}

TEST(EntryPoints, AVersionNewerThanTheServersDriverIsInvalid) {
  void* function = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &function, 13010, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  g_driver_version = 13010;
  EXPECT_EQ(cuGetProcAddress_v2("cuInit", &function, 13010, 0, nullptr), CUDA_SUCCESS);
  g_driver_version = 13000;
  EXPECT_EQ(function, address_of("cuInit", 13000));
}

TEST(EntryPoints, TheRuntimeAsksForItsOwnVersion) {
  void* function = nullptr;
  auto status = cudaDriverEntryPointVersionNotSufficent;
  EXPECT_EQ(cudaGetDriverEntryPoint("cuEventElapsedTime", &function, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_EQ(function, address_of("cuEventElapsedTime_v2", 0));
  EXPECT_EQ(cudaGetDriverEntryPoint("cuStreamQuery", &function, cudaEnablePerThreadDefaultStream,
                                    nullptr),
            cudaSuccess);
  EXPECT_EQ(function, address_of("cuStreamQuery_ptsz", 0));
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, 0, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

}  // namespace
