// How many blocks a multiprocessor holds follows from threads and shared memory, grows where they
// shrink, and a cooperative launch of so many runs.
#include <cooperative_groups.h>

#include "check.h"

__global__ void plain(int* out) { *out = 1; }
__global__ void large() {
  __shared__ int room[8000];
  room[threadIdx.x] = 1;
  __syncthreads();
  if (room[0] == 2) printf("no\n");
}
__global__ void meet(int* sum) {
  if (threadIdx.x == 0) atomicAdd(sum, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0 && blockIdx.x == 0) sum[1] = sum[0];
}

int main() {
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  int blocks = 0, flagged = 0, before = 1 << 20;
  for (int threads : {64, 128, 256, 512, 1024}) {
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, threads, 0));
    CHECK(blocks >= 1 && blocks <= before && blocks <= p.maxBlocksPerMultiProcessor);
    CHECK(blocks * threads <= p.maxThreadsPerMultiProcessor);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&flagged, plain, threads, 0,
                                                              cudaOccupancyDisableCachingOverride));
    CHECK(flagged == blocks);
    before = blocks;
  }
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large, 64, 0));
  CHECK(blocks >= 1 && blocks * 32000 <= int(p.sharedMemPerMultiprocessor));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&flagged, large, 64, 10000));
  CHECK(flagged >= 1 && flagged <= blocks);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 2048, 0));
  CHECK(blocks == 0);
  // Not the header's template of that name, but the function.
  const auto address = reinterpret_cast<const void*>(large);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&flagged, address, 64, 0));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large, 64, 0));
  CHECK(flagged == blocks);
  GIVES(cudaErrorInvalidValue,
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, address, 0, 0));
  GIVES(cudaErrorInvalidValue,
        cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, plain, 64, 0, 0x80));

  // The room that is left for each of some blocks: so many fit, with it.
  size_t room = 0, room_of_one = 0;
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&room_of_one, plain, 1, 128));
  OK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, plain, 4, 128));
  CHECK(room > 0 && room <= room_of_one && room_of_one <= p.sharedMemPerMultiprocessor);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, plain, 128, room));
  CHECK(blocks >= 4);

  // The best block, by the header's own search over these calls.
  int grid = 0, block = 0;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, plain, 0, 0));
  CHECK(block >= 128 && block % 32 == 0 && grid >= p.multiProcessorCount);

  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, meet, 32, 0));
  const int most = blocks * p.multiProcessorCount;
  int *sum, host[2] = {};
  OK(cudaMalloc(&sum, sizeof host));
  OK(cudaMemset(sum, 0, sizeof host));
  void* arguments[] = {&sum};
  OK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(meet), dim3(most), dim3(32),
                                 arguments, 0, 0));
  OK(cudaMemcpy(host, sum, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == most && host[1] == most);
  GIVES(cudaErrorCooperativeLaunchTooLarge,
        cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(meet), dim3(most + 1), dim3(32),
                                    arguments, 0, 0));
  OK(cudaFree(sum));
  return pass();
}
