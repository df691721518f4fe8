// What a kernel of one process spoils is that process's alone: another that has memory and work on
// the device at the time goes on. cudaDeviceReset does not mend the spoiled one's past errors.
#include <sys/wait.h>

#include "check.h"

__global__ void write_at(int* x, long long offset, int value) { x[offset] = value; }

static void tell(int to) { CHECK(write(to, "x", 1) == 1); }
static void wait_for(int from) {
  char letter;
  CHECK(read(from, &letter, 1) == 1);
}

static int spoil(int from, int to) {
  wait_for(from);
  int *x, value = 0;
  OK(cudaMalloc(&x, 1024));
  write_at<<<1, 1>>>(x, 3, 1);
  OK(cudaDeviceSynchronize());
  // Nothing lies beyond the allocation's pages, nor so far below it.
  write_at<<<1, 1>>>(x, 1ll << 42, 2);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost) == cudaErrorIllegalAddress);
  CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
  cudaEvent_t event;
  CHECK(cudaEventCreate(&event) == cudaErrorIllegalAddress);
  CHECK(cudaFree(x) == cudaErrorIllegalAddress);
  tell(to);
  return 0;
}

int main() {
  int to_child[2], to_parent[2];
  CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
  const pid_t child = fork();  // Before either has called anything of CUDA.
  if (child == 0) _exit(spoil(to_child[0], to_parent[1]));
  int *x, got[2] = {};
  OK(cudaMalloc(&x, 1024));
  OK(cudaMemset(x, 0, 1024));
  write_at<<<1, 1>>>(x, 0, 41);
  OK(cudaDeviceSynchronize());
  tell(to_child[1]);
  wait_for(to_parent[0]);
  write_at<<<1, 1>>>(x, 1, 42);
  OK(cudaMemcpy(got, x, sizeof got, cudaMemcpyDeviceToHost));
  CHECK(got[0] == 41 && got[1] == 42);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(cudaFree(x));
  return pass();
}
