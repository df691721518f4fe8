// Nodes tell their parameters and take others, in the graph before it is instantiated, or in what
// is executable alone; nodes are left out; a whole graph of the same shape takes a graph's place.
#include <cstring>

#include "check.h"

__global__ void add(int* x, int value) { atomicAdd(x, value); }
__global__ void times(int* x, int value) { *x *= value; }

static int *x, *y, calls = 0;
static cudaStream_t s;
static void CUDART_CB called(void* data) { calls += *static_cast<int*>(data); }

static cudaKernelNodeParams kernel(void (*function)(int*, int), void** arguments) {
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(function);
  p.gridDim = p.blockDim = dim3(1);
  p.kernelParams = arguments;
  return p;
}

static int run(cudaGraphExec_t executable) {
  int host = -1;
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  return host;
}

// x = 5 (a memset and a kernel), y = x, a call.
struct Nodes {
  cudaGraphNode_t set, kernel, copy, host;
};
static cudaGraph_t make(Nodes& nodes, int value, int* count) {
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams zero = {};
  zero.dst = x;
  zero.elementSize = 1;
  zero.width = sizeof(int);
  zero.height = 1;
  OK(cudaGraphAddMemsetNode(&nodes.set, graph, nullptr, 0, &zero));
  void* arguments[] = {&x, &value};
  const cudaKernelNodeParams adds = kernel(add, arguments);
  OK(cudaGraphAddKernelNode(&nodes.kernel, graph, &nodes.set, 1, &adds));
  OK(cudaGraphAddMemcpyNode1D(&nodes.copy, graph, &nodes.kernel, 1, y, x, sizeof(int),
                              cudaMemcpyDeviceToDevice));
  cudaHostNodeParams host = {called, count};
  OK(cudaGraphAddHostNode(&nodes.host, graph, &nodes.copy, 1, &host));
  return graph;
}

static void told(const Nodes& nodes, int* count) {
  cudaKernelNodeParams k = {};
  OK(cudaGraphKernelNodeGetParams(nodes.kernel, &k));
  CHECK(k.func == reinterpret_cast<void*>(add) && k.gridDim.x == 1 && k.blockDim.z == 1);
  CHECK(*static_cast<int**>(k.kernelParams[0]) == x && *static_cast<int*>(k.kernelParams[1]) == 5);
  cudaMemsetParams m = {};
  OK(cudaGraphMemsetNodeGetParams(nodes.set, &m));
  CHECK(m.dst == x && m.elementSize == 1 && m.width == sizeof(int) && m.value == 0);
  cudaMemcpy3DParms c = {};
  OK(cudaGraphMemcpyNodeGetParams(nodes.copy, &c));
  CHECK(c.srcPtr.ptr == x && c.dstPtr.ptr == y && c.extent.width == sizeof(int));
  cudaHostNodeParams h = {};
  OK(cudaGraphHostNodeGetParams(nodes.host, &h));
  CHECK(h.fn == called && h.userData == count);
  GIVES(cudaErrorInvalidValue, cudaGraphKernelNodeGetParams(nodes.host, &k));

  cudaLaunchAttributeValue value = {};
  int least = 0, greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  value.priority = greatest;
  OK(cudaGraphKernelNodeSetAttribute(nodes.kernel, cudaLaunchAttributePriority, &value));
  value.priority = 99;
  OK(cudaGraphKernelNodeGetAttribute(nodes.kernel, cudaLaunchAttributePriority, &value));
  CHECK(value.priority == greatest);
}

static void changed(const Nodes& nodes, int* ten) {
  int seven = 7;
  void* arguments[] = {&x, &seven};
  const cudaKernelNodeParams adds = kernel(add, arguments);
  OK(cudaGraphKernelNodeSetParams(nodes.kernel, &adds));
  cudaMemsetParams ones = {};
  ones.dst = x;
  ones.elementSize = 4;
  ones.value = 100;
  ones.width = ones.height = 1;
  OK(cudaGraphMemsetNodeSetParams(nodes.set, &ones));
  cudaHostNodeParams host = {called, ten};
  OK(cudaGraphHostNodeSetParams(nodes.host, &host));
  OK(cudaGraphMemcpyNodeSetParams1D(nodes.copy, y, x, 2, cudaMemcpyDeviceToDevice));
  cudaMemcpy3DParms c = {};
  OK(cudaGraphMemcpyNodeGetParams(nodes.copy, &c));
  CHECK(c.extent.width == 2);
  c.extent.width = sizeof(int);
  c.srcPtr = make_cudaPitchedPtr(x, sizeof(int), sizeof(int), 1);
  c.dstPtr = make_cudaPitchedPtr(y + 1, sizeof(int), sizeof(int), 1);
  c.kind = cudaMemcpyDeviceToDevice;
  OK(cudaGraphMemcpyNodeSetParams(nodes.copy, &c));
}

static void expect_y(int first, int second) {
  int host[2];
  OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == first && host[1] == second);
}

static void in_executable(cudaGraphExec_t executable, const Nodes& nodes, int* hundred) {
  int two = 2;
  void* arguments[] = {&x, &two};
  const cudaKernelNodeParams other = kernel(times, arguments);
  OK(cudaGraphExecKernelNodeSetParams(executable, nodes.kernel, &other));
  cudaMemsetParams fifty = {};
  fifty.dst = x;
  fifty.elementSize = 4;
  fifty.value = 50;
  fifty.width = fifty.height = 1;
  OK(cudaGraphExecMemsetNodeSetParams(executable, nodes.set, &fifty));
  cudaHostNodeParams host = {called, hundred};
  OK(cudaGraphExecHostNodeSetParams(executable, nodes.host, &host));
  OK(cudaGraphExecMemcpyNodeSetParams1D(executable, nodes.copy, y, x, sizeof(int),
                                        cudaMemcpyDeviceToDevice));
  CHECK(run(executable) == 100 && calls == 100);
  expect_y(100, 107);
  cudaMemcpy3DParms c = {};
  c.srcPtr = make_cudaPitchedPtr(x, sizeof(int), sizeof(int), 1);
  c.dstPtr = make_cudaPitchedPtr(y + 1, sizeof(int), sizeof(int), 1);
  c.extent = make_cudaExtent(sizeof(int), 1, 1);
  c.kind = cudaMemcpyDeviceToDevice;
  OK(cudaGraphExecMemcpyNodeSetParams(executable, nodes.copy, &c));
  CHECK(run(executable) == 100 && calls == 200);
  expect_y(100, 100);

  unsigned enabled = 9;
  OK(cudaGraphNodeGetEnabled(executable, nodes.set, &enabled));
  CHECK(enabled == 1);
  OK(cudaGraphNodeSetEnabled(executable, nodes.set, 0));
  OK(cudaGraphNodeGetEnabled(executable, nodes.set, &enabled));
  CHECK(enabled == 0);
  CHECK(run(executable) == 200 && run(executable) == 400);
  OK(cudaGraphNodeSetEnabled(executable, nodes.set, 1));
  CHECK(run(executable) == 100);
}

int main() {
  int one = 1, ten = 10, hundred = 100;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMalloc(&y, 2 * sizeof(int)));
  OK(cudaMemset(y, 0, 2 * sizeof(int)));
  OK(cudaStreamCreate(&s));
  Nodes nodes, others;
  cudaGraph_t graph = make(nodes, 5, &one);
  told(nodes, &one);
  cudaGraphExec_t executable, second;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(run(executable) == 5 && calls == 1);
  expect_y(5, 0);
  changed(nodes, &ten);
  CHECK(run(executable) == 5 && calls == 2);  // As it was made.
  OK(cudaGraphInstantiateWithFlags(&second, graph, 0));
  calls = 0;
  CHECK(run(second) == 107 && calls == 10);
  expect_y(5, 107);
  calls = 0;
  in_executable(executable, nodes, &hundred);

  // Another graph of the same shape; then one of another.
  cudaGraph_t other = make(others, 9, &one);
  cudaGraphExecUpdateResultInfo info = {};
  OK(cudaGraphExecUpdate(executable, other, &info));
  CHECK(info.result == cudaGraphExecUpdateSuccess);
  CHECK(run(executable) == 9);
  cudaGraphNode_t extra;
  OK(cudaGraphAddEmptyNode(&extra, other, &others.host, 1));
  GIVES(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(executable, other, &info));
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CHECK(run(executable) == 9);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphExecDestroy(second));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(other));
  OK(cudaFree(x));
  OK(cudaFree(y));
  OK(cudaStreamDestroy(s));
  return pass();
}
