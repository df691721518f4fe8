// y = a x + y for a million numbers: memory, copies both ways and one kernel.
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#define OK(call)                                                                    \
  do {                                                                              \
    const cudaError_t error = (call);                                               \
    if (error != cudaSuccess) {                                                     \
      printf("FAIL line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

__global__ void saxpy(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

int main() {
  const int n = 1 << 20;
  const size_t size = n * sizeof(float);
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; i++) x[i] = (float)(i % 1000), y[i] = (float)(i % 7);

  float *device_x, *device_y;
  OK(cudaMalloc(&device_x, size));
  OK(cudaMalloc(&device_y, size));
  OK(cudaMemcpy(device_x, x.data(), size, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device_y, y.data(), size, cudaMemcpyHostToDevice));
  saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, device_x, device_y);
  OK(cudaGetLastError());
  OK(cudaMemcpy(y.data(), device_y, size, cudaMemcpyDeviceToHost));
  OK(cudaFree(device_x));
  OK(cudaFree(device_y));

  int wrong = 0;
  for (int i = 0; i < n; i++) wrong += y[i] != 2.0f * (i % 1000) + (float)(i % 7);
  printf("saxpy: y = 2 x + y for %d numbers, %d of them wrong\n", n, wrong);
  printf(wrong == 0 ? "PASS\n" : "FAIL\n");
  return wrong != 0;
}
