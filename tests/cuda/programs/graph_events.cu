// A graph records events and waits for them; a child graph's place is taken by another; what a
// graph holds of the program's objects lives as long as it, its clones and what was made of it.
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

__global__ void put(int* x, int value) { *x = value; }

static std::atomic<int> destroyed{0};
static void CUDART_CB destroy(void*) { ++destroyed; }
static void expect_destroyed(int count) {
  for (int i = 0; i < 1000 && destroyed != count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(destroyed == count);
}

static cudaGraph_t one_kernel(int* x, int value, cudaGraphNode_t* node) {
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  void* arguments[] = {&x, &value};
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(put);
  p.gridDim = p.blockDim = dim3(1);
  p.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(node, graph, nullptr, 0, &p));
  return graph;
}

static int value_of(const int* x) {
  int host = -1;
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  return host;
}

static void events(int* x, cudaStream_t a, cudaStream_t b) {
  cudaEvent_t done, go, other;
  OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&go, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&other, cudaEventDisableTiming));
  cudaGraphNode_t kernel, wait, record;
  cudaGraph_t graph = one_kernel(x, 11, &kernel);
  OK(cudaGraphAddEventWaitNode(&wait, graph, nullptr, 0, go));
  OK(cudaGraphAddDependencies(graph, &wait, &kernel, nullptr, 1));
  OK(cudaGraphAddEventRecordNode(&record, graph, &kernel, 1, other));
  cudaEvent_t told = nullptr;
  OK(cudaGraphEventRecordNodeGetEvent(record, &told));
  CHECK(told == other);
  OK(cudaGraphEventRecordNodeSetEvent(record, done));
  OK(cudaGraphEventRecordNodeGetEvent(record, &told));
  CHECK(told == done);
  OK(cudaGraphEventWaitNodeGetEvent(wait, &told));
  CHECK(told == go);
  OK(cudaGraphEventWaitNodeSetEvent(wait, other));
  OK(cudaGraphEventWaitNodeSetEvent(wait, go));
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));

  // After what b did first, before what it does next.
  put<<<1, 1, 0, b>>>(x, 3);
  OK(cudaEventRecord(go, b));
  OK(cudaGraphLaunch(executable, a));
  OK(cudaStreamWaitEvent(b, done, 0));
  int* host;
  OK(cudaMallocHost(&host, sizeof *host));
  OK(cudaMemcpyAsync(host, x, sizeof *host, cudaMemcpyDeviceToHost, b));
  OK(cudaStreamSynchronize(b));
  CHECK(*host == 11);
  OK(cudaEventSynchronize(done));
  // Others in their places, in what is executable alone.
  OK(cudaGraphExecEventRecordNodeSetEvent(executable, record, other));
  OK(cudaGraphExecEventWaitNodeSetEvent(executable, wait, done));
  put<<<1, 1, 0, b>>>(x, 4);
  OK(cudaEventRecord(done, b));
  OK(cudaGraphLaunch(executable, a));
  OK(cudaEventSynchronize(other));
  CHECK(value_of(x) == 11);
  OK(cudaFreeHost(host));
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
  for (cudaEvent_t each : {done, go, other}) OK(cudaEventDestroy(each));
}

static void children(int* x, cudaStream_t s) {
  cudaGraphNode_t inner, node;
  cudaGraph_t child = one_kernel(x, 21, &inner), other = one_kernel(x, 22, &inner), graph;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  CHECK(value_of(x) == 21);
  OK(cudaGraphExecChildGraphNodeSetParams(executable, node, other));
  OK(cudaGraphLaunch(executable, s));
  OK(cudaStreamSynchronize(s));
  CHECK(value_of(x) == 22);

  // Attributes of one kernel node are given to another.
  cudaGraphNode_t first, second;
  cudaGraph_t pair = one_kernel(x, 1, &first);
  int value = 2;
  void* arguments[] = {&x, &value};
  cudaKernelNodeParams p = {};
  p.func = reinterpret_cast<void*>(put);
  p.gridDim = p.blockDim = dim3(1);
  p.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(&second, pair, &first, 1, &p));
  cudaLaunchAttributeValue attribute = {};
  attribute.cooperative = 1;
  OK(cudaGraphKernelNodeSetAttribute(first, cudaLaunchAttributeCooperative, &attribute));
  OK(cudaGraphKernelNodeCopyAttributes(second, first));
  attribute.cooperative = 0;
  OK(cudaGraphKernelNodeGetAttribute(second, cudaLaunchAttributeCooperative, &attribute));
  CHECK(attribute.cooperative == 1);
  OK(cudaGraphExecDestroy(executable));
  for (cudaGraph_t each : {child, other, graph, pair}) OK(cudaGraphDestroy(each));
}

static void objects(int* x) {
  cudaGraphNode_t node;
  cudaGraph_t graph = one_kernel(x, 1, &node), clone;
  cudaUserObject_t object;
  OK(cudaUserObjectCreate(&object, x, destroy, 2, cudaUserObjectNoDestructorSync));
  OK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  OK(cudaGraphRetainUserObject(graph, object, 1, 0));
  OK(cudaUserObjectRelease(object, 1));  // The last one of ours.
  OK(cudaGraphReleaseUserObject(graph, object, 1));
  CHECK(destroyed == 0);
  OK(cudaGraphClone(&clone, graph));
  OK(cudaGraphDestroy(graph));
  CHECK(destroyed == 0);
  cudaGraphExec_t executable;
  OK(cudaGraphInstantiate(&executable, clone, 0));
  OK(cudaGraphDestroy(clone));
  OK(cudaGraphLaunch(executable, 0));
  OK(cudaStreamSynchronize(0));
  CHECK(destroyed == 0);
  OK(cudaGraphExecDestroy(executable));
  expect_destroyed(1);
}

int main() {
  int* x;
  cudaStream_t a, b;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  events(x, a, b);
  children(x, a);
  objects(x);
  OK(cudaFree(x));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  return pass();
}
