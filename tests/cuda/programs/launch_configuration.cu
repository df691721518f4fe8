// A launch that cannot be is refused at once, its error is the last error once, and nothing of it
// is left: the next synchronization is clean and the next launch runs.
#include "check.h"

__global__ void count(int* x) { atomicAdd(x, 1); }

static void refused(dim3 grid, dim3 block, size_t shared, int* x) {
  count<<<grid, block, shared>>>(x);
  CHECK(cudaPeekAtLastError() != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
  OK(cudaDeviceSynchronize());
}

int main() {
  int *x, value = -1;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMemset(x, 0, sizeof *x));
  void* arguments[] = {&x};
  const void* kernel = (const void*)count;
  GIVES(cudaErrorInvalidConfiguration, cudaLaunchKernel(kernel, dim3(0), dim3(1), arguments, 0, 0));
  OK(cudaDeviceSynchronize());
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchKernel(kernel, dim3(1), dim3(4096), arguments, 0, 0));
  OK(cudaDeviceSynchronize());
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchKernel(kernel, dim3(1), dim3(1, 1, 65), arguments, 0, 0));
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchKernel(kernel, dim3(1, 1, 65536), dim3(1), arguments, 0, 0));
  refused(dim3(0, 1, 1), dim3(1), 0, x);
  refused(dim3(1, 0, 1), dim3(1), 0, x);
  refused(dim3(1), dim3(0), 0, x);
  refused(dim3(1), dim3(32, 33), 0, x);
  refused(dim3(1), dim3(1, 2048), 0, x);
  refused(dim3(1), dim3(32), 1 << 28, x);
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 0);
  // The largest that are allowed, and every dimension used.
  count<<<1, 1024>>>(x);
  count<<<dim3(2, 3, 4), dim3(4, 2, 8)>>>(x);
  count<<<dim3(1, 1, 65), dim3(1, 1, 64)>>>(x);
  count<<<1, 32, 48 * 1024>>>(x);
  OK(cudaGetLastError());
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 1024 + 24 * 64 + 65 * 64 + 32);
  return pass();
}
