// The program ends while a kernel runs that would take a minute, with more behind it: it must end
// at once. The alarm ends it otherwise, with another status.
#include "check.h"

__global__ void spin(long long ticks, volatile int* x) {
  const long long begin = clock64();
  while (clock64() - begin < ticks) *x = 1;
}

int main() {
  int *x, *pinned;
  cudaStream_t stream, other;
  OK(cudaMalloc(&x, 2 * sizeof *x));
  OK(cudaMallocHost(&pinned, 2 * sizeof *x));
  OK(cudaMemset(x, 0, 2 * sizeof *x));
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  spin<<<1, 1, 0, stream>>>(90000000000ll, x);
  OK(cudaMemcpyAsync(pinned, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(stream, [](void*) { _exit(3); }, nullptr));
  // It runs: another stream sees what it writes.
  do {
    OK(cudaMemcpyAsync(pinned + 1, x, sizeof *x, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
  } while (pinned[1] == 0);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  alarm(20);
  return pass();
}
