// A kernel is launched by <<<>>>, by its address, with a configuration and attributes, or all
// blocks at once; each gives the same, in the stream it was put on.
#include <cooperative_groups.h>

#include "check.h"

__global__ void step(int* x, int n, int times, int plus) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * times + plus;
}
__global__ void total(const int* x, int n, int* partial, int* sum) {
  extern __shared__ int room[];
  int mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    mine += x[i];
  room[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned i = 1; i < blockDim.x; ++i) mine += room[i];
    partial[blockIdx.x] = mine;
  }
  cooperative_groups::this_grid().sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) *sum += partial[i];
  }
}

int main() {
  constexpr int kCount = 2000;
  int *x, *partial, *sum, n = kCount, times = 1, plus = 3, host = 0;
  OK(cudaMalloc(&x, sizeof(int) * kCount));
  OK(cudaMalloc(&partial, sizeof(int) * 8));
  OK(cudaMalloc(&sum, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int) * kCount));
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  const dim3 grid((kCount + 127) / 128), block(128);
  void* arguments[] = {&x, &n, &times, &plus};

  step<<<grid, block, 0, s>>>(x, n, 1, 2);  // 2
  OK(cudaGetLastError());
  // The values are taken at the call.
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(step), grid, block, arguments, 0, s));  // 5
  times = 10;
  plus = 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = s;
  OK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(step), arguments));  // 50
  OK(cudaLaunchKernelEx(&config, step, x, n, 1, 7));                                 // 57
  int priority = 0;
  OK(cudaStreamGetPriority(s, &priority));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributePriority;
  attributes[0].val.priority = priority;
  attributes[1].id = cudaLaunchAttributeIgnore;
  config.attrs = attributes;
  config.numAttrs = 2;
  OK(cudaLaunchKernelEx(&config, step, x, n, 2, 0));  // 114

  void* of_total[] = {&x, &n, &partial, &sum};
  OK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(total), dim3(8), dim3(64), of_total,
                                 64 * sizeof(int), s));
  OK(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  CHECK(host == 114 * kCount);

  // Cooperative by an attribute is the same launch.
  OK(cudaMemsetAsync(sum, 0, sizeof(int), s));
  cudaLaunchAttribute together = {};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  config.gridDim = dim3(4);
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = 32 * sizeof(int);
  config.attrs = &together;
  config.numAttrs = 1;
  OK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(total), of_total));
  OK(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  CHECK(host == 114 * kCount);

  config.gridDim = dim3(0);
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(total), of_total));
  GIVES(cudaErrorInvalidConfiguration,
        cudaLaunchKernel(reinterpret_cast<const void*>(step), grid, dim3(4096), arguments, 0, s));
  GIVES(cudaErrorInvalidDeviceFunction, cudaLaunchKernel(&n, grid, block, arguments, 0, s));
  OK(cudaDeviceSynchronize());
  OK(cudaFree(x));
  OK(cudaFree(partial));
  OK(cudaFree(sum));
  OK(cudaStreamDestroy(s));
  return pass();
}
