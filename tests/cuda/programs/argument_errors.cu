// Wrong arguments give the codes that the CUDA Runtime gives, copies of nothing succeed, and each
// refused call leaves memory as it was.
#include "check.h"

__device__ int variable[4];

static void of_memory() {
  char *x, host[64] = {}, back[64];
  void* none = (void*)1;
  size_t pitch;
  OK(cudaMalloc(&x, 64));
  for (int i = 0; i < 64; i++) host[i] = (char)(i + 1);
  OK(cudaMemcpy(x, host, 64, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidValue, cudaMalloc(nullptr, 16));
  GIVES(cudaErrorMemoryAllocation, cudaMalloc(&none, 1ull << 50));
  OK(cudaMalloc(&none, 0));
  CHECK(none == nullptr);
  GIVES(cudaErrorInvalidValue, cudaMallocHost((void**)nullptr, 16));
  GIVES(cudaErrorInvalidValue, cudaHostAlloc(&none, 16, 0x100));
  GIVES(cudaErrorInvalidValue, cudaMallocPitch(nullptr, &pitch, 8, 8));
  GIVES(cudaErrorInvalidValue, cudaFree(x + 4));
  OK(cudaFree(nullptr));
  OK(cudaFreeHost(nullptr));
  GIVES(cudaErrorInvalidValue, cudaMemcpy(x, nullptr, 16, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidValue, cudaMemcpy(nullptr, x, 16, cudaMemcpyDeviceToHost));
  GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy(x, host, 16, (cudaMemcpyKind)77));
  GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpyAsync(x, host, 16, (cudaMemcpyKind)-1, nullptr));
  GIVES(cudaErrorInvalidValue, cudaMemset(nullptr, 0, 16));
  GIVES(cudaErrorInvalidPitchValue, cudaMemcpy2D(x, 4, host, 8, 8, 2, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidPitchValue, cudaMemcpy2D(x, 8, host, 4, 8, 2, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(x, host, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpyAsync(host, x, 0, cudaMemcpyDeviceToHost, nullptr));
  OK(cudaMemcpy2D(x, 8, host, 8, 8, 0, cudaMemcpyHostToDevice));
  OK(cudaMemset(x, 1, 0));
  OK(cudaMemcpy(back, x, 64, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; i++) CHECK(back[i] == i + 1);
  OK(cudaFree(x));
  GIVES(cudaErrorInvalidValue, cudaFree(x));
}

static void of_streams_and_events() {
  cudaStream_t stream;
  cudaEvent_t start, end, untimed;
  float time = -1;
  GIVES(cudaErrorInvalidValue, cudaStreamCreate(nullptr));
  GIVES(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&stream, 0x100));
  GIVES(cudaErrorInvalidValue, cudaEventCreate(nullptr));
  GIVES(cudaErrorInvalidValue, cudaEventCreateWithFlags(&start, 0x100));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventRecord(nullptr, nullptr));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventQuery(nullptr));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventSynchronize(nullptr));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventDestroy(nullptr));
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&time, start, end));
  OK(cudaEventRecord(start, stream));
  OK(cudaEventRecord(end, stream));
  OK(cudaEventRecord(untimed, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaEventElapsedTime(&time, start, end));
  CHECK(time >= 0);
  GIVES(cudaErrorInvalidValue, cudaEventElapsedTime(nullptr, start, end));
  GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&time, start, untimed));
  GIVES(cudaErrorInvalidValue, cudaLaunchHostFunc(stream, nullptr, nullptr));
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  OK(cudaEventDestroy(untimed));
  OK(cudaStreamDestroy(stream));
}

static void of_devices_and_symbols() {
  int count = 0, value = -1, other = 0;
  cudaDeviceProp properties;
  void* address = nullptr;
  size_t size = 0;
  OK(cudaGetDeviceCount(&count));
  GIVES(cudaErrorInvalidDevice, cudaSetDevice(count));
  GIVES(cudaErrorInvalidDevice, cudaSetDevice(-1));
  GIVES(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count));
  GIVES(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, (cudaDeviceAttr)100000, 0));
  GIVES(cudaErrorInvalidDevice, cudaGetDeviceProperties(&properties, count));
  GIVES(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, other));
  GIVES(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, other));
  GIVES(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(other, &value, sizeof value));
  GIVES(cudaErrorInvalidValue, cudaMemcpyToSymbol(variable, &value, sizeof value, 13));
  GIVES(cudaErrorInvalidMemcpyDirection,
        cudaMemcpyToSymbol(variable, &value, sizeof value, 0, cudaMemcpyDeviceToHost));
  OK(cudaGetSymbolSize(&size, variable));
  CHECK(size == sizeof variable);
  CHECK(cudaGetErrorName((cudaError_t)123456) != nullptr);
  CHECK(cudaGetErrorString((cudaError_t)123456) != nullptr);
}

int main() {
  of_memory();
  of_streams_and_events();
  of_devices_and_symbols();
  OK(cudaDeviceSynchronize());
  return pass();
}
