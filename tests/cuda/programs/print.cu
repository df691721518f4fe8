// What kernels print is there when the host has synchronized, with every conversion as C has it.

// Says: thread 3: -7 42 ff 2.50 word 9000000000 x%
#include "check.h"

__global__ void speak() {
  if (threadIdx.x == 3) {
    printf("thread %d: %d %u %x %.2f %s %lld %c%%\n", threadIdx.x, -7, 42u, 255, 2.5, "word",
           9000000000ll, 'x');
  }
}

int main() {
  speak<<<1, 32>>>();
  OK(cudaDeviceSynchronize());
  return pass();
}
