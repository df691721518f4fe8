// The legacy default stream waits for every blocking stream and they for it; streams made with
// cudaStreamNonBlocking take no part. A host function holds one of them, so nothing is luck.
#include <atomic>
#include <thread>

#include "check.h"

__global__ void add(int* x, int value) { *x = *x * 10 + value; }

static std::atomic<bool> held{false};

static void CUDART_CB hold(void*) {
  while (held) std::this_thread::yield();
}

static int value_of(const int* x, cudaStream_t stream) {
  int value = -1;
  OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
  return value;
}

int main() {
  cudaStream_t a, b, apart;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreate(&b));
  OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  int *x, *y;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMalloc(&y, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  OK(cudaMemset(y, 0, sizeof(int)));
  add<<<1, 1>>>(y, 0);  // The kernel is loaded before anything is held.
  OK(cudaDeviceSynchronize());

  held = true;
  OK(cudaLaunchHostFunc(a, hold, nullptr));
  add<<<1, 1, 0, a>>>(x, 1);
  add<<<1, 1>>>(x, 2);        // Behind a...
  add<<<1, 1, 0, b>>>(x, 3);  // ...and before b.
  add<<<1, 1, 0, cudaStreamLegacy>>>(x, 4);
  add<<<1, 1, 0, cudaStreamPerThread>>>(x, 5);  // Blocking as well.
  add<<<1, 1, 0, nullptr>>>(x, 6);
  CHECK(cudaStreamQuery(a) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(cudaStreamPerThread) == cudaErrorNotReady);
  for (int i = 1; i <= 3; i++) add<<<1, 1, 0, apart>>>(y, i);
  OK(cudaStreamSynchronize(apart));  // Waits for none of them.
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);  // "Not ready" is no error.
  CHECK(value_of(y, apart) == 123);
  held = false;
  OK(cudaStreamSynchronize(nullptr));
  OK(cudaStreamQuery(a));
  OK(cudaStreamQuery(b));
  CHECK(value_of(x, apart) == 123456);

  // The legacy stream held: blocking streams wait, and an event of it is not reached.
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  OK(cudaMemset(x, 0, sizeof(int)));
  OK(cudaDeviceSynchronize());
  held = true;
  OK(cudaLaunchHostFunc(nullptr, hold, nullptr));
  OK(cudaEventRecord(event, nullptr));
  add<<<1, 1, 0, a>>>(x, 1);
  add<<<1, 1>>>(x, 2);
  add<<<1, 1, 0, b>>>(x, 3);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(a) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(b) == cudaErrorNotReady);
  OK(cudaStreamQuery(apart));
  held = false;
  OK(cudaDeviceSynchronize());
  OK(cudaEventQuery(event));
  CHECK(value_of(x, apart) == 123);

  // A plain copy waits for blocking streams too.
  held = true;
  OK(cudaLaunchHostFunc(a, hold, nullptr));
  add<<<1, 1, 0, a>>>(x, 4);
  std::thread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    held = false;
  });
  int value = 0;
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 1234);
  opener.join();
  OK(cudaEventDestroy(event));
  for (cudaStream_t stream : {a, b, apart}) OK(cudaStreamDestroy(stream));
  return pass();
}
