// Four streams work on a quarter each: copies up, a kernel and copies down, none of them waited
// for. A fifth stream adds the quarters up once events say that they are there.
#include <cuda_runtime.h>

#include <cstdio>

#define OK(call)                                                                    \
  do {                                                                              \
    const cudaError_t error = (call);                                               \
    if (error != cudaSuccess) {                                                     \
      printf("FAIL line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

__global__ void square(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= x[i];
}
__global__ void add_up(const int* x, int n, int parts, int* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int sum = 0;
  for (int part = 0; part < parts; part++) sum += x[part * n + i];
  sums[i] = sum;
}

int main() {
  const int parts = 4, n = 1 << 16;  // Numbers in each part.
  const size_t size = n * sizeof(int);
  int *host, *host_sums, *device, *sums;
  OK(cudaMallocHost(&host, parts * size));
  OK(cudaMallocHost(&host_sums, size));
  OK(cudaMalloc(&device, parts * size));
  OK(cudaMalloc(&sums, size));
  for (int i = 0; i < parts * n; i++) host[i] = i % 1000;

  cudaStream_t streams[parts], last;
  cudaEvent_t squared[parts];
  OK(cudaStreamCreate(&last));
  for (int part = 0; part < parts; part++) {
    OK(cudaStreamCreate(&streams[part]));
    OK(cudaEventCreateWithFlags(&squared[part], cudaEventDisableTiming));
    int *const from = host + part * n, *const to = device + part * n;
    OK(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, streams[part]));
    square<<<n / 256, 256, 0, streams[part]>>>(to, n);
    OK(cudaEventRecord(squared[part], streams[part]));
    OK(cudaMemcpyAsync(from, to, size, cudaMemcpyDeviceToHost, streams[part]));
    OK(cudaStreamWaitEvent(last, squared[part], 0));
  }
  add_up<<<n / 256, 256, 0, last>>>(device, n, parts, sums);
  OK(cudaMemcpyAsync(host_sums, sums, size, cudaMemcpyDeviceToHost, last));
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());

  int wrong = 0;
  for (int i = 0; i < n; i++) {
    int want = 0;
    for (int part = 0; part < parts; part++) {
      const int x = (part * n + i) % 1000;
      wrong += host[part * n + i] != x * x;
      want += x * x;
    }
    wrong += host_sums[i] != want;
  }
  for (int part = 0; part < parts; part++) {
    OK(cudaStreamDestroy(streams[part]));
    OK(cudaEventDestroy(squared[part]));
  }
  OK(cudaStreamDestroy(last));
  OK(cudaFree(device));
  OK(cudaFree(sums));
  OK(cudaFreeHost(host));
  OK(cudaFreeHost(host_sums));
  printf("streams: %d streams squared %d numbers each and a fifth added them up, %d wrong\n", parts,
         n, wrong);
  printf(wrong == 0 ? "PASS\n" : "FAIL\n");
  return wrong != 0;
}
