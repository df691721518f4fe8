// malloc() and free() in kernels: blocks of different threads do not overlap, and outlive the
// kernel.
#include <vector>

#include "check.h"

__global__ void make(int** blocks, int words) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  blocks[i] = static_cast<int*>(malloc(words * sizeof(int)));
  for (int k = 0; k < words; ++k) blocks[i][k] = i;
}
__global__ void take(int** blocks, int words, int* wrong) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int k = 0; k < words; ++k) {
    if (blocks[i][k] != i) atomicAdd(wrong, 1);
  }
  free(blocks[i]);
}

int main() {
  constexpr int kThreads = 256;
  int** blocks = nullptr;
  int* wrong = nullptr;
  int found = -1;
  OK(cudaMalloc(&blocks, kThreads * sizeof(int*)));
  OK(cudaMalloc(&wrong, sizeof(int)));
  OK(cudaMemset(wrong, 0, sizeof(int)));
  for (int round = 0; round < 3; ++round) {
    make<<<4, kThreads / 4>>>(blocks, 17);
    take<<<2, kThreads / 2>>>(blocks, 17, wrong);
  }
  OK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(found == 0);
  return pass();
}
