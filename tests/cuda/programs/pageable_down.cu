// An asynchronous copy down into memory of malloc, read at once: the call returns when the data is
// there. On the default stream, on others, and behind a kernel that takes its time.
#include <cstring>

#include "check.h"

__global__ void fill(int* x, int n, int value, long long ticks) {
  const long long begin = clock64();
  while (clock64() - begin < ticks) {
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = value + i;
}

int main() {
  const int n = 5000;
  int* device;
  OK(cudaMalloc(&device, n * sizeof(int)));
  cudaStream_t streams[3] = {nullptr, nullptr, cudaStreamPerThread};
  OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  for (int round = 0; round < 6; round++) {
    cudaStream_t stream = streams[round % 3];
    int* host = (int*)malloc(n * sizeof(int));
    memset(host, 0xEE, n * sizeof(int));
    fill<<<1, 64, 0, stream>>>(device, n, round * 1000, 300000);
    OK(cudaMemcpyAsync(host, device, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < n; i++) CHECK(host[i] == round * 1000 + i);
    free(host);
  }
  // Onto the stack, by the direction that the pointers say.
  int last = 0;
  OK(cudaMemcpyAsync(&last, device + n - 1, sizeof last, cudaMemcpyDefault, streams[1]));
  CHECK(last == 5000 + n - 1);
  OK(cudaStreamDestroy(streams[1]));
  return pass();
}
