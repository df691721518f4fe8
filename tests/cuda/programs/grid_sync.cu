// A cooperative launch: blocks that meet at a barrier of the whole grid, several times.
#include <cooperative_groups.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

// Each round every thread reads what its right neighbour, of another block too, wrote before.
__global__ void shift(int* x, int* y, int rounds) {
  cg::grid_group grid = cg::this_grid();
  const int i = (int)grid.thread_rank(), n = (int)grid.size();
  for (int round = 0; round < rounds; round++) {
    y[i] = x[(i + 1) % n] + 1;
    grid.sync();
    x[i] = y[i];
    grid.sync();
  }
}

int main() {
  int supported = 0, per_multiprocessor = 0, multiprocessors = 0;
  OK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
  CHECK(supported == 1);
  OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, shift, 64, 0));
  CHECK(per_multiprocessor >= 1);
  const int blocks = 6, block = 64, n = blocks * block;
  CHECK(blocks <= per_multiprocessor * multiprocessors);
  std::vector<int> start(n), got(n);
  for (int i = 0; i < n; i++) start[i] = i * i;
  int *x, *y, rounds = 7;
  OK(cudaMalloc(&x, n * sizeof(int)));
  OK(cudaMalloc(&y, n * sizeof(int)));
  OK(cudaMemcpy(x, start.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  void* arguments[] = {&x, &y, &rounds};
  OK(cudaLaunchCooperativeKernel((const void*)shift, dim3(blocks), dim3(block), arguments, 0, 0));
  OK(cudaMemcpy(got.data(), x, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) CHECK(got[i] == start[(i + rounds) % n] + rounds);
  // More blocks than the device holds at once would wait for each other for ever.
  const dim3 too_many(per_multiprocessor * multiprocessors + 1);
  GIVES(cudaErrorCooperativeLaunchTooLarge,
        cudaLaunchCooperativeKernel((const void*)shift, too_many, dim3(block), arguments, 0, 0));
  OK(cudaDeviceSynchronize());
  return pass();
}
