// Graphs are refused by name, and what was asked for otherwise goes on as before.
#include "check.h"

__global__ void add(int* x) { *x += 1; }

int main() {
  int* x = nullptr;
  int value = 0;
  cudaGraph_t graph = nullptr;
  cudaStream_t stream;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  OK(cudaStreamCreate(&stream));
  GIVES(cudaErrorNotSupported, cudaGraphCreate(&graph, 0));
  GIVES(cudaErrorNotSupported, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, stream>>>(x);
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
  CHECK(value == 1);
  return pass();
}
