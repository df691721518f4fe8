// Capturing a stream, memory of graphs and conditional nodes are refused by name, and what was
// asked for otherwise goes on as before, graphs included.
#include "check.h"

__global__ void add(int* x) { *x += 1; }

int main() {
  int* x = nullptr;
  int value = 0;
  cudaGraph_t graph = nullptr, captured = nullptr;
  cudaGraphNode_t node;
  cudaGraphExec_t executable;
  cudaStream_t stream;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  OK(cudaStreamCreate(&stream));
  OK(cudaGraphCreate(&graph, 0));
  GIVES(cudaErrorNotSupported, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  GIVES(cudaErrorNotSupported, cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                                             cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, stream>>>(x);
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
  CHECK(value == 1);
  GIVES(cudaErrorNotSupported, cudaStreamEndCapture(stream, &captured));
  GIVES(cudaErrorNotSupported, cudaStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 0));

  cudaMemAllocNodeParams room = {};
  room.bytesize = 1024;
  room.poolProps.allocType = cudaMemAllocationTypePinned;
  room.poolProps.location = {cudaMemLocationTypeDevice, 0};
  GIVES(cudaErrorNotSupported, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &room));
  GIVES(cudaErrorNotSupported, cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, x));
  cudaGraphConditionalHandle condition;
  GIVES(cudaErrorNotSupported, cudaGraphConditionalHandleCreate(&condition, graph, 0, 0));

  void* arguments[] = {&x};
  cudaKernelNodeParams adds = {};
  adds.func = reinterpret_cast<void*>(add);
  adds.gridDim = adds.blockDim = dim3(1);
  adds.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &adds));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
  CHECK(value == 2);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  return pass();
}
