// A failed assertion names itself, ends the kernel with 710, and spoils the process's context for
// good.

// Says: positive > 0
#include <cassert>

#include "check.h"

__global__ void check_it(int positive) { assert(positive > 0); }

int main() {
  check_it<<<1, 1>>>(1);
  OK(cudaDeviceSynchronize());
  check_it<<<1, 1>>>(-1);
  CHECK(cudaDeviceSynchronize() == cudaErrorAssert);
  CHECK(cudaGetLastError() == cudaErrorAssert);
  CHECK(cudaGetLastError() == cudaErrorAssert);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorAssert);
  printf("PASS\n");
  return 0;
}
