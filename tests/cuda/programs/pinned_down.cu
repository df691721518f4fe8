// A copy down into pinned memory returns at once; the data is in place when a synchronization, an
// event or a query says that it is done, each of them, and is delivered once.
#include <atomic>
#include <thread>

#include "check.h"

__global__ void fill(int* x, int n, int value) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = value + i;
}

static std::atomic<bool> held{false};
static void CUDART_CB hold(void*) {
  while (held) std::this_thread::yield();
}

const int n = 40000;

static void expect(const int* host, int value) {
  for (int i = 0; i < n; i++) CHECK(host[i] == value + i);
}

int main() {
  int *x, *pinned;
  const size_t size = n * sizeof(int);
  cudaStream_t stream, other;
  cudaEvent_t event;
  OK(cudaMalloc(&x, size));
  OK(cudaMallocHost(&pinned, size));
  int* registered = (int*)aligned_alloc(4096, 160 * 1024);
  OK(cudaHostRegister(registered, 160 * 1024, cudaHostRegisterDefault));
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  fill<<<1, 64>>>(x, n, 0);
  OK(cudaDeviceSynchronize());
  for (int round = 0; round < 12; round++) {
    int* host = round % 2 ? registered : pinned;
    for (int i = 0; i < n; i++) host[i] = -1;
    held = true;
    OK(cudaLaunchHostFunc(stream, hold, nullptr));
    fill<<<1, 64, 0, stream>>>(x, n, round);
    OK(cudaMemcpyAsync(host, x, size, cudaMemcpyDeviceToHost, stream));
    OK(cudaEventRecord(event, stream));
    CHECK(host[0] == -1 && host[n - 1] == -1);  // The calls have returned, the copy waits.
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    held = false;
    switch (round / 2) {
      case 0:
        OK(cudaStreamSynchronize(stream));
        break;
      case 1:
        OK(cudaEventSynchronize(event));
        break;
      case 2:
        OK(cudaDeviceSynchronize());
        break;
      case 3:
        while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        }
        break;
      case 4:
        while (cudaEventQuery(event) == cudaErrorNotReady) {
        }
        break;
      case 5:  // A wait for another stream that waits for this one.
        OK(cudaStreamWaitEvent(other, event, 0));
        OK(cudaStreamSynchronize(other));
    }
    expect(host, round);
    OK(cudaGetLastError());
    // What the host writes then stays, whatever is waited for afterwards.
    for (int i = 0; i < n; i++) host[i] = 7 + i;
    OK(cudaStreamSynchronize(stream));
    OK(cudaDeviceSynchronize());
    expect(host, 7);
  }
  // A blocking copy up, of pinned memory that an earlier copy down still fills.
  fill<<<1, 64, 0, stream>>>(x, n, 500);
  OK(cudaMemcpyAsync(pinned, x, size, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemcpy(x, pinned, size, cudaMemcpyHostToDevice));  // The legacy stream: after the other.
  OK(cudaMemcpy(registered, x, size, cudaMemcpyDeviceToHost));
  expect(registered, 500);
  OK(cudaHostUnregister(registered));
  free(registered);
  OK(cudaFreeHost(pinned));
  return pass();
}
