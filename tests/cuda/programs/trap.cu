// A kernel that traps gives this process error 719, which stays.
#include "check.h"

__global__ void trap_if(int yes) {
  if (yes) __trap();
}

int main() {
  trap_if<<<1, 32>>>(0);
  OK(cudaDeviceSynchronize());
  trap_if<<<2, 32>>>(1);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  trap_if<<<1, 32>>>(0);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  printf("PASS\n");
  return 0;
}
