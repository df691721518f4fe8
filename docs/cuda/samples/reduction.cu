// The sum of a million numbers: each warp adds up by shuffles, each block in shared memory, and the
// blocks by an atomic addition.
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

__device__ unsigned long long sum_of_warp(unsigned long long value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
  return value;
}

__global__ void add_up(const unsigned* values, int n, unsigned long long* total) {
  __shared__ unsigned long long of_warps[32];
  unsigned long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += values[i];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  sum = sum_of_warp(sum);
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (warp != 0) return;
  sum = sum_of_warp(lane < blockDim.x / 32 ? of_warps[lane] : 0);
  if (lane == 0) atomicAdd(total, sum);
}

int main() {
  const int n = 1000000;
  std::vector<unsigned> values(n);
  unsigned long long want = 0, got = 0;
  for (int i = 0; i < n; i++) want += values[i] = i * 2654435761u;

  unsigned* device_values;
  unsigned long long* total;
  OK(cudaMalloc(&device_values, n * sizeof(unsigned)));
  OK(cudaMalloc(&total, sizeof *total));
  OK(cudaMemset(total, 0, sizeof *total));
  OK(cudaMemcpy(device_values, values.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  add_up<<<64, 256>>>(device_values, n, total);
  OK(cudaGetLastError());
  OK(cudaMemcpy(&got, total, sizeof got, cudaMemcpyDeviceToHost));
  OK(cudaFree(device_values));
  OK(cudaFree(total));

  printf("reduction: %d numbers add up to %llu, the host says %llu\n", n, got, want);
  printf(got == want ? "PASS\n" : "FAIL\n");
  return got != want;
}
