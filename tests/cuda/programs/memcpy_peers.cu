// Memory of one device is copied to another's, with access between them or without; access is
// given once and taken back once. On one device the same calls copy within it.

// Devices: 2
#include <cstring>

#include "check.h"

__global__ void fill(int* x, int n, int seed) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = i * 3 + seed;
}
__global__ void read_other(const int* from, int* to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i] + 1;
}

constexpr int kCount = 3000;
static int host[kCount];

static void expect(const int* x, int seed) {
  memset(host, 0, sizeof host);
  OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) CHECK(host[i] == i * 3 + seed);
}

static void access(int other, const int* x, int* y) {
  int can = -1, value = -1;
  GIVES(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&can, 0, 99));
  OK(cudaDeviceCanAccessPeer(&can, 0, 0));
  CHECK(can == 0);
  OK(cudaDeviceCanAccessPeer(&can, other, 0));
  if (other == 0) return;
  OK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, other, 0));
  CHECK(value == can);
  const cudaAtomicOperation adds = cudaAtomicOperationIntegerAdd;
  unsigned atomics = ~0u;
  OK(cudaDeviceGetP2PAtomicCapabilities(&atomics, &adds, 1, other, 0));
  OK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrNativeAtomicSupported, other, 0));
  CHECK(!value || (atomics & cudaAtomicCapabilityScalar32));
  CHECK(can || atomics == 0);
  OK(cudaSetDevice(other));
  if (!can) {
    GIVES(cudaErrorPeerAccessUnsupported, cudaDeviceEnablePeerAccess(0, 0));
    return;
  }
  GIVES(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(0));
  OK(cudaDeviceEnablePeerAccess(0, 0));
  GIVES(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(0, 0));
  read_other<<<(kCount + 255) / 256, 256>>>(x, y, kCount);
  expect(y, 5 + 1);
  OK(cudaDeviceDisablePeerAccess(0));
  GIVES(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(0));
}

int main() {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  const int other = count > 1 ? 1 : 0;
  int *x, *y;
  OK(cudaSetDevice(0));
  OK(cudaMalloc(&x, sizeof host));
  fill<<<(kCount + 255) / 256, 256>>>(x, kCount, 5);
  OK(cudaDeviceSynchronize());
  OK(cudaSetDevice(other));
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  OK(cudaMalloc(&y, sizeof host));

  OK(cudaMemcpyPeer(y, other, x, 0, sizeof host));
  expect(y, 5);
  OK(cudaMemsetAsync(y, 0, sizeof host, s));
  OK(cudaMemcpyPeerAsync(y, other, x, 0, sizeof host, s));
  OK(cudaStreamSynchronize(s));
  expect(y, 5);
  fill<<<(kCount + 255) / 256, 256, 0, s>>>(y, kCount, 8);
  OK(cudaMemcpyPeerAsync(x, 0, y, other, sizeof host, s));
  OK(cudaStreamSynchronize(s));
  expect(x, 8);

  // Boxes: rows of 40 bytes, the first of every 100.
  cudaMemcpy3DPeerParms p = {};
  p.srcPtr = make_cudaPitchedPtr(x, 100, 100, 6);
  p.dstPtr = make_cudaPitchedPtr(y, 40, 40, 6);
  p.srcDevice = 0;
  p.dstDevice = other;
  p.extent = make_cudaExtent(40, 6, 4);
  for (bool async : {false, true}) {
    OK(cudaMemset(y, 0, sizeof host));
    OK(cudaDeviceSynchronize());
    if (async) {
      OK(cudaMemcpy3DPeerAsync(&p, s));
      OK(cudaStreamSynchronize(s));
    } else {
      OK(cudaMemcpy3DPeer(&p));
    }
    OK(cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost));
    for (int row = 0; row < 24; ++row)
      for (int i = 0; i < 10; ++i) CHECK(host[row * 10 + i] == (row * 25 + i) * 3 + 8);
    CHECK(host[240] == 0);
  }
  OK(cudaSetDevice(0));
  fill<<<(kCount + 255) / 256, 256>>>(x, kCount, 5);
  OK(cudaDeviceSynchronize());
  access(other, x, y);
  OK(cudaStreamDestroy(s));
  OK(cudaFree(x));
  OK(cudaFree(y));
  return pass();
}
