// Functions of the host run in a stream's order, once each, after what came before and before what
// comes next; a callback is told its stream and that all is well.
#include <atomic>
#include <vector>

#include "check.h"

static std::vector<int> order;
static std::atomic<int> calls{0};
static int* seen;
static cudaStream_t expected;

static void note(void* data) {
  order.push_back(static_cast<int>(reinterpret_cast<long>(data)));
  ++calls;
}
static void CUDART_CB called(cudaStream_t stream, cudaError_t status, void* data) {
  CHECK(stream == expected && status == cudaSuccess);
  note(data);
}
// What the copy before it brought is there; what it leaves is what the copy after it takes.
static void look(void* data) {
  CHECK(*seen == 123);
  *static_cast<int*>(data) = 456;
  ++calls;
}

__global__ void put(int* x, int value) { *x = value; }

int main() {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  expected = s;
  for (long i = 0; i < 20; ++i) {
    if (i % 2 == 0) {
      OK(cudaLaunchHostFunc(s, note, reinterpret_cast<void*>(i)));
    } else {
      OK(cudaStreamAddCallback(s, called, reinterpret_cast<void*>(i), 0));
    }
  }
  OK(cudaStreamSynchronize(s));
  CHECK(calls == 20 && order.size() == 20);
  for (int i = 0; i < 20; ++i) CHECK(order[i] == i);
  GIVES(cudaErrorInvalidValue, cudaStreamAddCallback(s, called, nullptr, 1));
  GIVES(cudaErrorInvalidValue, cudaStreamAddCallback(s, nullptr, nullptr, 0));
  GIVES(cudaErrorInvalidValue, cudaLaunchHostFunc(s, nullptr, nullptr));

  int *x, *out;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMallocHost(&seen, sizeof *seen));
  OK(cudaMallocHost(&out, sizeof *out));
  *seen = *out = 0;
  put<<<1, 1, 0, s>>>(x, 123);
  OK(cudaMemcpyAsync(seen, x, sizeof *x, cudaMemcpyDeviceToHost, s));
  OK(cudaLaunchHostFunc(s, look, out));
  OK(cudaMemcpyAsync(x, out, sizeof *x, cudaMemcpyHostToDevice, s));
  OK(cudaStreamSynchronize(s));
  CHECK(calls == 21);
  int host = 0;
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 456);
  OK(cudaFreeHost(seen));
  OK(cudaFreeHost(out));
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
  return pass();
}
