// A stream that nobody captures says so, in each of the ways to ask; a thread's capture mode is
// exchanged, and each thread has its own.
#include <thread>

#include "check.h"

int main() {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  OK(cudaStreamIsCapturing(s, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  status = cudaStreamCaptureStatusActive;
  unsigned long long id = 1;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  OK(cudaStreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &edges, &count));
  CHECK(status == cudaStreamCaptureStatusNone);
  GIVES(cudaErrorInvalidValue, cudaStreamIsCapturing(s, nullptr));

  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  std::thread([] {
    cudaStreamCaptureMode own = cudaStreamCaptureModeThreadLocal;
    OK(cudaThreadExchangeStreamCaptureMode(&own));
    CHECK(own == cudaStreamCaptureModeGlobal);
  }).join();
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeRelaxed);
  mode = cudaStreamCaptureMode(7);
  GIVES(cudaErrorInvalidValue, cudaThreadExchangeStreamCaptureMode(&mode));

  // What a stream does is at once visible: nothing is being recorded.
  int *x, host = 0;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMemsetAsync(x, 1, sizeof *x, s));
  OK(cudaMemcpyAsync(&host, x, sizeof host, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  CHECK(host == 0x01010101);
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
  return pass();
}
