// A launch that is refused says so once, to the calling thread alone; good calls in between do not
// clear it, nothing of it runs, and every way to launch behaves alike.
#include <cstring>
#include <thread>

#include "check.h"

__global__ void mark(int* x) { atomicAdd(x, 1); }
__global__ void __launch_bounds__(64) few(int* x) { atomicAdd(x, 1); }

static int marked(const int* x) {
  int value = -1;
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

int main() {
  int *x, value = 0;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMemset(x, 0, sizeof *x));
  mark<<<1, 2048>>>(x);
  OK(cudaDeviceSynchronize());
  CHECK(marked(x) == 0);
  for (int i = 0; i < 3; i++) CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  cudaError_t other = cudaErrorUnknown;
  std::thread([&] {
    other = cudaGetLastError();
    mark<<<1, 0>>>(x);  // This thread's own error goes with it.
  }).join();
  CHECK(other == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);

  // The latest error is the last error.
  mark<<<1, 2048>>>(x);
  CHECK(cudaSetDevice(4096) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);

  void* arguments[] = {&x};
  const void* kernel = (const void*)mark;
  GIVES(cudaErrorInvalidDeviceFunction,
        cudaLaunchKernel((const void*)&value, dim3(1), dim3(1), arguments, 0, nullptr));
  GIVES(cudaErrorInvalidDeviceFunction,
        cudaLaunchKernel(nullptr, dim3(1), dim3(1), arguments, 0, nullptr));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(2048);
  GIVES(cudaErrorInvalidConfiguration, cudaLaunchKernelExC(&config, kernel, arguments));
  GIVES(cudaErrorInvalidConfiguration, cudaLaunchKernelEx(&config, mark, x));
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchCooperativeKernel(kernel, dim3(1), dim3(0), arguments, 0, nullptr));
  few<<<1, 65>>>(x);  // More threads than it was compiled for.
  CHECK(cudaGetLastError() != cudaSuccess);
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, few));
  CHECK(attributes.maxThreadsPerBlock == 64);
  OK(cudaDeviceSynchronize());
  CHECK(marked(x) == 0);

  // The same, well formed.
  few<<<1, 64>>>(x);
  config.blockDim = dim3(3);
  OK(cudaLaunchKernelExC(&config, kernel, arguments));
  OK(cudaLaunchKernelEx(&config, mark, x));
  OK(cudaLaunchKernel(kernel, dim3(2), dim3(4), arguments, 0, nullptr));
  OK(cudaLaunchCooperativeKernel(kernel, dim3(1), dim3(5), arguments, 0, nullptr));
  CHECK(marked(x) == 64 + 6 + 6 + 8 + 5);
  const char* name = cudaGetErrorName(cudaErrorInvalidConfiguration);
  CHECK(strcmp(name, "cudaErrorInvalidConfiguration") == 0);
  CHECK(strcmp(cudaGetErrorString(cudaErrorInvalidConfiguration),
               "invalid configuration argument") == 0);
  return pass();
}
