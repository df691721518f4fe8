// An event is reached when what was before it on its stream is done: it can be asked, waited for,
// waited for by another stream, and two of them tell the time between.
#include "check.h"

__global__ void spin(long long ticks) {
  const long long start = clock64();
  while (clock64() - start < ticks) {
  }
}
__global__ void put(int* x, int value) { *x = value; }
__global__ void copy(int* to, const int* from) { *to = *from; }

int main() {
  cudaStream_t a, b;
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  cudaEvent_t start, end, order, late;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  OK(cudaEventCreateWithFlags(&order, cudaEventDisableTiming));
  OK(cudaEventCreate(&late));
  cudaEvent_t none = nullptr;
  GIVES(cudaErrorInvalidValue, cudaEventCreateWithFlags(&none, 0x80));
  // Between processes needs one without timing.
  GIVES(cudaErrorInvalidValue, cudaEventCreateWithFlags(&none, cudaEventInterprocess));

  // One that was never recorded is reached, and tells no time.
  OK(cudaEventQuery(start));
  OK(cudaEventSynchronize(start));
  float ms = -1;
  GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, end));

  int *x, *y;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMalloc(&y, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  OK(cudaMemset(y, 0, sizeof(int)));
  OK(cudaDeviceSynchronize());
  OK(cudaEventRecord(start, a));
  spin<<<1, 1, 0, a>>>(20000000);
  put<<<1, 1, 0, a>>>(x, 77);
  OK(cudaEventRecord(order, a));
  OK(cudaEventRecordWithFlags(end, a, cudaEventRecordDefault));
  const cudaError_t early = cudaEventQuery(end);
  CHECK(early == cudaErrorNotReady || early == cudaSuccess);
  // NotReady is no error that stays.
  OK(cudaGetLastError() == cudaErrorNotReady ? cudaSuccess : cudaGetLastError());
  OK(cudaStreamWaitEvent(b, order, 0));
  copy<<<1, 1, 0, b>>>(y, x);
  OK(cudaStreamSynchronize(b));
  int host = 0;
  OK(cudaMemcpy(&host, y, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 77);
  OK(cudaEventSynchronize(end));
  OK(cudaEventQuery(end));
  OK(cudaEventQuery(order));
  OK(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms > 1 && ms < 60000);
  float back = 0;
  OK(cudaEventElapsedTime(&back, end, start));
  CHECK(back == -ms);
  GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, start, order));

  // A wait holds for the recording at its time, not for a later one.
  OK(cudaEventRecord(late, a));
  OK(cudaStreamWaitEvent(b, late, cudaEventWaitDefault));
  spin<<<1, 1, 0, a>>>(20000000);
  OK(cudaEventRecord(late, a));
  OK(cudaStreamSynchronize(b));
  OK(cudaEventSynchronize(late));
  OK(cudaStreamQuery(a));
  OK(cudaEventElapsedTime(&ms, end, late));
  CHECK(ms > 1);

  // A destroyed event's wait stays.
  put<<<1, 1, 0, a>>>(x, 78);
  OK(cudaEventRecord(order, a));
  OK(cudaStreamWaitEvent(b, order, 0));
  OK(cudaEventDestroy(order));
  copy<<<1, 1, 0, b>>>(y, x);
  OK(cudaStreamSynchronize(b));
  OK(cudaMemcpy(&host, y, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 78);
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  OK(cudaEventDestroy(late));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  return pass();
}
