// A launched graph does what its nodes say, each time anew and in the order of its edges: memsets,
// copies, kernels, host functions, a child graph. Host memory is read and written at each launch
// alone.
#include <cstring>

#include "check.h"

__global__ void add(int* x, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += value;
}
__global__ void multiply(int* x, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= value;
}

constexpr int kCount = 1000;
static int calls = 0;
static void CUDART_CB called(void* data) { calls += *static_cast<int*>(data); }

static cudaKernelNodeParams kernel(void (*function)(int*, int, int), void** arguments) {
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(function);
  p.gridDim = dim3((kCount + 127) / 128);
  p.blockDim = dim3(128);
  p.kernelParams = arguments;
  return p;
}

__device__ int variable[4];
__global__ void raise_variable() { variable[threadIdx.x] += 1; }

// Copies to and from a variable, changed in the graph and in what is executable.
static void symbols(cudaStream_t s) {
  int in[4] = {1, 2, 3, 4}, others[4] = {10, 20, 30, 40}, out[4] = {}, second[4] = {};
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaGraphNode_t to, kernel_node, from;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, variable, in, sizeof in, 0,
                                    cudaMemcpyHostToDevice));
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(raise_variable);
  p.gridDim = dim3(1);
  p.blockDim = dim3(4);
  OK(cudaGraphAddKernelNode(&kernel_node, graph, &to, 1, &p));
  OK(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &kernel_node, 1, out, variable, sizeof out, 0,
                                      cudaMemcpyDeviceToHost));
  GIVES(cudaErrorInvalidValue, cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, in, sizeof in, 4,
                                                                    cudaMemcpyHostToDevice));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < 4; ++i) CHECK(out[i] == i + 2);
  OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(executable, to, variable, others + 1, sizeof(int), 4,
                                              cudaMemcpyHostToDevice));
  OK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(executable, from, second, variable, 8, 4,
                                                cudaMemcpyDeviceToHost));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  CHECK(second[0] == 21 && second[1] == 5 && second[2] == 0);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphMemcpyNodeSetParamsToSymbol(to, variable, others, sizeof others, 0,
                                          cudaMemcpyHostToDevice));
  OK(cudaGraphMemcpyNodeSetParamsFromSymbol(from, second, variable, sizeof second, 0,
                                            cudaMemcpyDeviceToHost));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < 4; ++i) CHECK(second[i] == (i + 1) * 10 + 1 && out[i] == i + 2);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
}

int main() {
  int *x, *up, *down, n = kCount, three = 3, ten = 10;
  OK(cudaMalloc(&x, kCount * sizeof(int)));
  OK(cudaMallocHost(&up, kCount * sizeof(int)));
  OK(cudaMallocHost(&down, kCount * sizeof(int)));
  cudaStream_t s;
  OK(cudaStreamCreate(&s));

  // x = up + 3, a child multiplies by 10, down = x.
  cudaGraph_t graph, child;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphCreate(&child, 0));
  void* of_add[] = {&x, &n, &three};
  void* of_multiply[] = {&x, &n, &ten};
  const cudaKernelNodeParams adds = kernel(add, of_add), multiplies = kernel(multiply, of_multiply);
  cudaGraphNode_t copy_up, add_node, child_node, inner, copy_down, host_node, set_node;
  OK(cudaGraphAddKernelNode(&inner, child, nullptr, 0, &multiplies));
  cudaMemsetParams zero = {};
  zero.dst = x;
  zero.elementSize = 4;
  zero.value = 0x7fffffff;
  zero.width = kCount;
  zero.height = 1;
  OK(cudaGraphAddMemsetNode(&set_node, graph, nullptr, 0, &zero));
  OK(cudaGraphAddMemcpyNode1D(&copy_up, graph, &set_node, 1, x, up, (kCount - 1) * sizeof(int),
                              cudaMemcpyHostToDevice));
  OK(cudaGraphAddKernelNode(&add_node, graph, &copy_up, 1, &adds));
  OK(cudaGraphAddChildGraphNode(&child_node, graph, &add_node, 1, child));
  cudaMemcpy3DParms whole = {};
  whole.srcPtr = make_cudaPitchedPtr(x, kCount * sizeof(int), kCount, 1);
  whole.dstPtr = make_cudaPitchedPtr(down, kCount * sizeof(int), kCount, 1);
  whole.extent = make_cudaExtent(kCount * sizeof(int), 1, 1);
  whole.kind = cudaMemcpyDeviceToHost;
  OK(cudaGraphAddMemcpyNode(&copy_down, graph, &child_node, 1, &whole));
  int one = 1;
  cudaHostNodeParams host = {called, &one};
  OK(cudaGraphAddHostNode(&host_node, graph, &copy_down, 1, &host));
  // The values of parameters were taken; the child is a copy.
  three = ten = -1;
  OK(cudaGraphDestroy(child));
  cudaGraph_t its_child = nullptr;
  OK(cudaGraphChildGraphNodeGetGraph(child_node, &its_child));
  size_t count = 0;
  OK(cudaGraphGetNodes(its_child, nullptr, &count));
  CHECK(count == 1);

  cudaGraphExec_t executable;
  cudaGraphInstantiateParams how = {};
  how.flags = cudaGraphInstantiateFlagAutoFreeOnLaunch;
  OK(cudaGraphInstantiateWithParams(&executable, graph, &how));
  CHECK(how.result_out == cudaGraphInstantiateSuccess);
  unsigned long long flags = 0;
  OK(cudaGraphExecGetFlags(executable, &flags));
  CHECK(flags == cudaGraphInstantiateFlagAutoFreeOnLaunch);
  OK(cudaGraphDestroy(graph));  // What is executable stands alone.
  OK(cudaGraphUpload(executable, s));

  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kCount; ++i) up[i] = i * round;
    memset(down, 0, kCount * sizeof(int));
    OK(cudaGraphLaunch(executable, s));
    OK(cudaStreamSynchronize(s));
    CHECK(calls == round + 1);
    for (int i = 0; i + 1 < kCount; ++i) CHECK(down[i] == (i * round + 3) * 10);
    CHECK(down[kCount - 1] == static_cast<int>((0x7fffffffu + 3) * 10));
    // The host's own bytes stay: nothing is delivered twice.
    for (int i = 0; i < kCount; ++i) down[i] = -5;
    OK(cudaStreamSynchronize(s));
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) CHECK(down[i] == -5);
  }
  // Two launches, in order of the stream with what is around them.
  up[0] = 1;
  OK(cudaGraphLaunch(executable, s));
  add<<<(kCount + 127) / 128, 128, 0, s>>>(x, kCount, 7);
  int value = 0;
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  CHECK(value == 47 && calls == 6);
  OK(cudaGraphExecDestroy(executable));
  symbols(s);
  OK(cudaFree(x));
  OK(cudaFreeHost(up));
  OK(cudaFreeHost(down));
  OK(cudaStreamDestroy(s));
  return pass();
}
