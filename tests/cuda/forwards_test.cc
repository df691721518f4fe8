// The generated forwards over a driver of this test's own: which function is called, with what.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_shim/client/api_calls.h"
#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/streams.h"

namespace {

struct Seen {
  std::string calls;  // Names, a space after each.
  CUstream stream = nullptr;
  std::vector<int64_t> values;
  int contexts = 0;
  int refused = 0;
};
Seen g_seen;
cudaError_t g_context = cudaSuccess;
cudaError_t g_latched = cudaSuccess;
CUresult g_answer = CUDA_SUCCESS;
bool g_host_functions = false;

CUresult seen(const char* name, CUstream stream = nullptr) {
  g_seen.calls.append(name).append(" ");
  g_seen.stream = stream;
  return g_answer;
}

template <typename T>
T* pointer(uintptr_t value) {
  return reinterpret_cast<T*>(value);  // NOLINT(performance-no-int-to-ptr): a handle of no object.
}

class Forwards : public testing::Test {
 protected:
  void SetUp() override {
    g_seen = {};
    g_context = g_latched = cudaSuccess;
    g_answer = CUDA_SUCCESS;
    g_host_functions = false;
  }
};

}  // namespace

namespace rgpu::cuda {

cudaError_t ensure_context() noexcept {
  ++g_seen.contexts;
  return g_context;
}
CUresult initialise() noexcept { return static_cast<CUresult>(g_context); }
cudaError_t to_runtime(CUresult code) noexcept { return static_cast<cudaError_t>(code); }
cudaError_t latch(cudaError_t code) noexcept {
  if (code != cudaSuccess) g_latched = code;
  return code;
}
bool host_functions_pending() noexcept { return g_host_functions; }

}  // namespace rgpu::cuda

uint64_t rgpu_not_supported(uint32_t) noexcept {
  ++g_seen.refused;
  return 801;
}

// ---- The driver's functions

CUresult cuEventRecord(CUevent, CUstream stream) noexcept { return seen("cuEventRecord", stream); }
CUresult cuStreamSynchronize(CUstream stream) noexcept {
  return seen("cuStreamSynchronize", stream);
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel,
                              CUdevice device) noexcept {
  g_seen.values = {attribute, value, device};
  return seen("cuKernelSetAttribute");
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream stream) noexcept {
  g_seen.values = {static_cast<int64_t>(size)};
  *address = 0x1234;
  return seen("cuMemAllocAsync", stream);
}
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream stream) noexcept {
  return seen("cuMemcpyDtoHAsync_v2", stream);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, CUstream stream) noexcept {
  return seen("cuMemcpyHtoDAsync_v2", stream);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction, void**, void**) noexcept {
  if (config == nullptr) return seen("cuLaunchKernelEx(null)");
  g_seen.values = {config->gridDimX};
  return seen("cuLaunchKernelEx", config->hStream);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec*, CUgraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) noexcept {
  parameters->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  return seen("cuGraphInstantiateWithParams", parameters->hUploadStream);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) noexcept {
  *value = static_cast<int>(attribute);
  g_seen.values = {attribute, device};
  return seen("cuDeviceGetAttribute");
}
CUresult cuCtxCreate_v4(CUcontext*, CUctxCreateParams* parameters, unsigned flags,
                        CUdevice device) noexcept {
  g_seen.values = {parameters == nullptr, flags, device};
  return seen("cuCtxCreate_v4");
}

// The runtime's own, of which only the per-thread variant is generated.
cudaError_t cudaGetDriverEntryPoint(const char*, void**, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult*) noexcept {
  g_seen.values = {static_cast<int64_t>(flags)};
  return cudaSuccess;
}

// ---- What they are reached by

TEST_F(Forwards, ARuntimeFunctionIsItsDriverFunctionInAContext) {
  EXPECT_EQ(cudaEventRecord(nullptr, cudaStreamLegacy), cudaSuccess);
  EXPECT_EQ(g_seen.calls, "cuEventRecord ");
  EXPECT_EQ(g_seen.stream, cudaStreamLegacy);
  EXPECT_EQ(g_seen.contexts, 1);
  void* address = nullptr;
  EXPECT_EQ(cudaMallocAsync(&address, 7, nullptr), cudaSuccess);
  EXPECT_EQ(address, pointer<void>(0x1234));
  EXPECT_EQ(g_seen.values, std::vector<int64_t>{7});
}

TEST_F(Forwards, ArgumentsMayComeInAnotherOrder) {
  EXPECT_EQ(cudaKernelSetAttributeForDevice(nullptr, cudaFuncAttributePreferredSharedMemoryCarveout,
                                            50, 3),
            cudaSuccess);
  EXPECT_EQ(g_seen.values,
            (std::vector<int64_t>{CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, 3}));
}

TEST_F(Forwards, ErrorsAreLatched) {
  g_answer = CUDA_ERROR_INVALID_HANDLE;
  EXPECT_EQ(cudaEventRecord(nullptr, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(g_latched, cudaErrorInvalidResourceHandle);
}

TEST_F(Forwards, WithoutAContextTheDriverIsNotCalled) {
  g_context = cudaErrorNoDevice;
  EXPECT_EQ(cudaEventRecord(nullptr, nullptr), cudaErrorNoDevice);
  EXPECT_EQ(g_seen.calls, "");
  EXPECT_EQ(g_latched, cudaErrorNoDevice);
}

TEST_F(Forwards, DeviceAttributesNeedNoContext) {
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1), cudaSuccess);
  EXPECT_EQ(value, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  EXPECT_EQ(g_seen.contexts, 0);
}

TEST_F(Forwards, AMissingDriverFunctionIsRefusedByTheCallersName) {
  EXPECT_EQ(cudaEventElapsedTime(nullptr, nullptr, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(g_seen.refused, 1);
  EXPECT_EQ(g_latched, cudaErrorNotSupported);
  EXPECT_EQ(cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuEventDestroy(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(g_seen.refused, 3);
}

TEST_F(Forwards, TheNullStreamOfAPerThreadProgramIsTheThreadsOwn) {
  EXPECT_EQ(cudaEventRecord_ptsz(nullptr, nullptr), cudaSuccess);
  EXPECT_EQ(g_seen.stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(cuEventRecord_ptsz(nullptr, CU_STREAM_LEGACY), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.stream, CU_STREAM_LEGACY);
  const CUstream other = pointer<CUstream_st>(4096);
  EXPECT_EQ(cuEventRecord_ptsz(nullptr, other), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.stream, other);
}

TEST_F(Forwards, AStreamInAConfigurationIsReplacedInACopy) {
  CUlaunchConfig config{};
  config.gridDimX = 9;
  EXPECT_EQ(cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(g_seen.values, std::vector<int64_t>{9});
  EXPECT_EQ(config.hStream, nullptr);
  EXPECT_EQ(cuLaunchKernelEx_ptsz(nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.calls, "cuLaunchKernelEx cuLaunchKernelEx(null) ");

  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  EXPECT_EQ(cuGraphInstantiateWithParams_ptsz(nullptr, nullptr, &parameters), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.stream, CU_STREAM_PER_THREAD);
  EXPECT_EQ(parameters.hUploadStream, nullptr);
  EXPECT_EQ(parameters.result_out, CUDA_GRAPH_INSTANTIATE_ERROR);
}

TEST_F(Forwards, ASynchronousCopyWaitsForTheThreadsStreamAlone) {
  EXPECT_EQ(cuMemcpyDtoH_v2_ptds(nullptr, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.calls, "cuMemcpyDtoHAsync_v2 cuStreamSynchronize ");
  EXPECT_EQ(g_seen.stream, CU_STREAM_PER_THREAD);
}

TEST_F(Forwards, BytesToTheDeviceWaitOnlyBehindAHostFunction) {
  EXPECT_EQ(cuMemcpyHtoD_v2_ptds(0, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.calls, "cuMemcpyHtoDAsync_v2 ");
  g_host_functions = true;
  EXPECT_EQ(cuMemcpyHtoD_v2_ptds(0, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.calls, "cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2 cuStreamSynchronize ");
}

TEST_F(Forwards, ACopyThatFailsIsNotWaitedFor) {
  g_answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(cuMemcpyDtoH_v2_ptds(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(g_seen.calls, "cuMemcpyDtoHAsync_v2 ");
}

TEST_F(Forwards, OlderVersionsAreTheNewestWithWhatItAddedLeftOut) {
  EXPECT_EQ(cuCtxCreate_v2(nullptr, 8, 2), CUDA_SUCCESS);
  EXPECT_EQ(g_seen.calls, "cuCtxCreate_v4 ");
  EXPECT_EQ(g_seen.values, (std::vector<int64_t>{1, 8, 2}));
}

TEST_F(Forwards, AddressQueriesOfAPerThreadProgramMeanPerThreadFunctions) {
  EXPECT_EQ(cudaGetDriverEntryPoint_ptsz("cuInit", nullptr, cudaEnableDefault, nullptr),
            cudaSuccess);
  EXPECT_EQ(g_seen.values, std::vector<int64_t>{cudaEnablePerThreadDefaultStream});
  EXPECT_EQ(cudaGetDriverEntryPoint_ptsz("cuInit", nullptr, cudaEnableLegacyStream, nullptr),
            cudaSuccess);
  EXPECT_EQ(g_seen.values, std::vector<int64_t>{cudaEnableLegacyStream});
}
