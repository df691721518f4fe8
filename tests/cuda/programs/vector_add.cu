// Sums of two vectors of sizes that fill no whole block, on the legacy default stream.
#include <vector>

#include "check.h"

__global__ void add(const float* a, const float* b, float* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

static void sums_of(int n) {
  std::vector<float> a(n), b(n), sum(n, -1);
  for (int i = 0; i < n; i++) a[i] = 0.5f * i, b[i] = 3.0f - i;
  float *device_a, *device_b, *device_sum;
  const size_t size = n * sizeof(float);
  OK(cudaMalloc(&device_a, size));
  OK(cudaMalloc(&device_b, size));
  OK(cudaMalloc(&device_sum, size));
  OK(cudaMemcpy(device_a, a.data(), size, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device_b, b.data(), size, cudaMemcpyHostToDevice));
  add<<<(n + 255) / 256, 256>>>(device_a, device_b, device_sum, n);
  OK(cudaGetLastError());
  OK(cudaMemcpy(sum.data(), device_sum, size, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) CHECK(sum[i] == 3.0f - 0.5f * i);
  OK(cudaFree(device_a));
  OK(cudaFree(device_b));
  OK(cudaFree(device_sum));
}

int main() {
  for (int n : {1, 31, 256, 257, 100000}) sums_of(n);
  return pass();
}
