// More than 48 KiB of dynamic shared memory is to be asked for, and is refused at once when it was
// not.
#include "check.h"

extern __shared__ int shared[];

__global__ void reverse(int* data, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    shared[i] = data[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    data[i] = shared[n - 1 - i];
}

int main() {
  constexpr int n = 15 * 1024;
  constexpr size_t kBytes = n * sizeof(int);
  int* data = nullptr;
  static int host[n];
  for (int i = 0; i < n; ++i) host[i] = i;
  OK(cudaMalloc(&data, kBytes));
  OK(cudaMemcpy(data, host, kBytes, cudaMemcpyHostToDevice));
  reverse<<<1, 256, kBytes>>>(data, n);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, reverse));
  CHECK(attributes.maxDynamicSharedSizeBytes == static_cast<int>(kBytes));
  reverse<<<1, 256, kBytes>>>(data, n);
  OK(cudaMemcpy(host, data, kBytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) CHECK(host[i] == n - 1 - i);
  GIVES(cudaErrorInvalidValue,
        cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
  return pass();
}
