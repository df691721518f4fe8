// A kernel is asked about by the address that stands for it, or by its handle: attributes, name,
// parameters; what is set is kept; an address that stands for none is refused.
#include <cstring>

#include "check.h"

struct Given {
  char tag;
  double values[3];
};
extern "C" __global__ void __launch_bounds__(256) named(int* out, char c, Given given, short s) {
  __shared__ int mine[100];
  mine[threadIdx.x % 100] = c + s;
  __syncthreads();
  *out = mine[0] + int(given.values[2]);
}
__global__ void dynamic(int* out) {
  extern __shared__ int room[];
  room[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) *out = room[blockDim.x - 1];
}
static void not_a_kernel() {}

int main() {
  cudaFuncAttributes a;
  OK(cudaFuncGetAttributes(&a, named));
  CHECK(a.sharedSizeBytes == 400 && a.maxThreadsPerBlock == 256);
  CHECK(a.ptxVersion == 75 && a.binaryVersion >= 75);
  CHECK(a.numRegs > 0 && a.numRegs <= 255);
  OK(cudaFuncGetAttributes(&a, dynamic));
  CHECK(a.sharedSizeBytes == 0 && a.maxThreadsPerBlock == 1024);
  CHECK(a.maxDynamicSharedSizeBytes == 48 << 10);

  const char* name = nullptr;
  OK(cudaFuncGetName(&name, reinterpret_cast<const void*>(named)));
  CHECK(!strcmp(name, "named"));
  OK(cudaFuncGetName(&name, reinterpret_cast<const void*>(dynamic)));
  CHECK(strstr(name, "dynamic") != nullptr);
  const size_t offsets[] = {0, 8, 16, 48}, sizes[] = {8, 1, sizeof(Given), 2};
  for (size_t i = 0; i < 4; ++i) {
    size_t offset = 99, size = 99;
    OK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(named), i, &offset, &size));
    CHECK(offset == offsets[i] && size == sizes[i]);
  }
  size_t offset = 0, size = 0;
  GIVES(cudaErrorInvalidValue,
        cudaFuncGetParamInfo(reinterpret_cast<const void*>(named), 4, &offset, &size));

  // More than 48 KiB of shared memory must be asked for.
  int *out, host = 0;
  OK(cudaMalloc(&out, sizeof *out));
  const int bytes = 60 << 10;
  dynamic<<<1, 64, bytes>>>(out);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  OK(cudaFuncGetAttributes(&a, dynamic));
  CHECK(a.maxDynamicSharedSizeBytes == bytes);
  dynamic<<<1, 64, bytes>>>(out);
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 63);
  OK(cudaFuncSetAttribute(dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
  OK(cudaFuncGetAttributes(&a, dynamic));
  CHECK(a.preferredShmemCarveout == 50);
  GIVES(cudaErrorInvalidValue,
        cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 20));
  // Preferences, which change no result.
  OK(cudaFuncSetCacheConfig(dynamic, cudaFuncCachePreferShared));
  OK(cudaFuncSetSharedMemConfig(dynamic, cudaSharedMemBankSizeFourByte));
  dynamic<<<1, 32, bytes>>>(out);
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 31);

  // By a handle it is the same kernel.
  cudaFunction_t function = nullptr;
  cudaKernel_t kernel = nullptr;
  OK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(named)));
  OK(cudaGetKernel(&kernel, reinterpret_cast<const void*>(named)));
  CHECK(function != nullptr && kernel != nullptr);
  OK(cudaFuncGetAttributes(&a, reinterpret_cast<const void*>(kernel)));
  CHECK(a.sharedSizeBytes == 400 && a.maxThreadsPerBlock == 256);
  Given given = {'x', {1, 2, 30}};
  char c = 4;
  short s = 5;
  void* arguments[] = {&out, &c, &given, &s};
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(32), arguments, 0, 0));
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 39);

  const auto wrong = reinterpret_cast<const void*>(not_a_kernel);
  GIVES(cudaErrorInvalidDeviceFunction, cudaFuncGetAttributes(&a, wrong));
  GIVES(cudaErrorInvalidDeviceFunction,
        cudaFuncSetAttribute(wrong, cudaFuncAttributePreferredSharedMemoryCarveout, 1));
  GIVES(cudaErrorInvalidDeviceFunction, cudaGetFuncBySymbol(&function, wrong));
  OK(cudaFree(out));
  return pass();
}
