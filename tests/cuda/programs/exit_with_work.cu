// The program ends with kernels and copies still queued: it must end, and with its own status.
#include "check.h"

__global__ void spin(long long ticks, int* x) {
  const long long begin = clock64();
  while (clock64() - begin < ticks) {
  }
  atomicAdd(x, 1);
}

int main() {
  int *x, *pinned;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMallocHost(&pinned, sizeof *pinned));
  OK(cudaMemset(x, 0, sizeof *x));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  for (int i = 0; i < 50; i++) spin<<<2, 32, 0, stream>>>(5000000, x);
  OK(cudaMemcpyAsync(pinned, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
  // No synchronization, nothing freed or destroyed.
  return pass();
}
