// Down into pinned memory and up from it again on one stream without a wait in between: the second
// copy sends the bytes that the first one brought. Through host functions as well.
#include "check.h"

__global__ void fill(int* x, int n, int value) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = value * n + i;
}

struct Doubled {
  int* values;
  int n;
};

static void CUDART_CB twice(void* data) {
  const Doubled* job = (const Doubled*)data;
  for (int i = 0; i < job->n; i++) job->values[i] *= 2;
}

int main() {
  const int n = 3000;
  const size_t size = n * sizeof(int);
  int *from, *to, *pinned, *result;
  OK(cudaMalloc(&from, size));
  OK(cudaMalloc(&to, size));
  OK(cudaMallocHost(&pinned, size));
  OK(cudaHostAlloc(&result, size, cudaHostAllocPortable));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < n; i++) pinned[i] = -1, result[i] = -2;
    fill<<<1, 128, 0, stream>>>(from, n, round);
    OK(cudaMemcpyAsync(pinned, from, size, cudaMemcpyDeviceToHost, stream));
    const bool doubled = round % 2;
    Doubled job{pinned, n};
    if (doubled) OK(cudaLaunchHostFunc(stream, twice, &job));
    OK(cudaMemcpyAsync(to, pinned, size, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(result, to, size, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
      const int want = (round * n + i) * (doubled ? 2 : 1);
      CHECK(pinned[i] == want && result[i] == want);
    }
  }
  // An event orders what another stream sends up.
  cudaStream_t other;
  cudaEvent_t there;
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&there, cudaEventDisableTiming));
  fill<<<1, 128, 0, stream>>>(from, n, 77);
  OK(cudaMemcpyAsync(pinned, from, size, cudaMemcpyDeviceToHost, stream));
  OK(cudaEventRecord(there, stream));
  OK(cudaStreamWaitEvent(other, there, 0));
  OK(cudaMemcpyAsync(to, pinned, size, cudaMemcpyHostToDevice, other));
  OK(cudaMemcpyAsync(result, to, size, cudaMemcpyDeviceToHost, other));
  OK(cudaStreamSynchronize(other));
  for (int i = 0; i < n; i++) CHECK(result[i] == 77 * n + i);
  OK(cudaFreeHost(pinned));
  OK(cudaFreeHost(result));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(other));
  OK(cudaEventDestroy(there));
  return pass();
}
