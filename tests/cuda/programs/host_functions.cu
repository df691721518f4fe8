// Host functions and callbacks run in stream order, between the work before and after them, on a
// thread of their own.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void set(int* x, int value) { *x = value; }

static std::vector<int> order;
static std::thread::id runner;
static int* pinned = nullptr;

int main() {
  int* x = nullptr;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMallocHost(&pinned, 2 * sizeof(int)));
  set<<<1, 1, 0, stream>>>(x, 11);
  OK(cudaMemcpyAsync(pinned, x, sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(
      stream,
      [](void*) {
        runner = std::this_thread::get_id();
        order.push_back(pinned[0]);  // What was copied before is in place.
        pinned[1] = 22;              // What is copied after is written here.
      },
      nullptr));
  OK(cudaMemcpyAsync(x, pinned + 1, sizeof(int), cudaMemcpyHostToDevice, stream));
  OK(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t status, void* data) {
        order.push_back(status == cudaSuccess ? *static_cast<int*>(data) : -1);
      },
      new int(33), 0));
  int value = 0;
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(value == 22);
  CHECK(order == (std::vector<int>{11, 33}));
  CHECK(runner != std::this_thread::get_id());
  GIVES(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, nullptr, nullptr));
  return pass();
}
