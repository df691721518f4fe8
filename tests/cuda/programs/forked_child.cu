// A child of fork() cannot use what its parent began with, is told so, and does the parent no harm.
#include <sys/wait.h>

#include "check.h"

__global__ void add(int* x) { *x += 1; }

int main() {
  int* x = nullptr;
  int value = 0;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  add<<<1, 1>>>(x);
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    _exit(cudaMalloc(&memory, 4) == cudaErrorInitializationError &&
                  cudaDeviceSynchronize() == cudaErrorInitializationError
              ? 0
              : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  add<<<1, 1>>>(x);
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 2);
  return pass();
}
