// A kernel that reads where nothing is ends the context: error 700, from every call after it.
#include <cstring>

#include "check.h"

__global__ void read(const int* x, long long offset, int* out) { *out = x[offset]; }

int main() {
  int *x, *out, value = 0;
  OK(cudaMalloc(&x, 1024));
  OK(cudaMalloc(&out, sizeof *out));
  OK(cudaMemset(x, 1, 1024));
  read<<<1, 1>>>(x, 255, out);
  OK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 0x01010101);

  read<<<1, 1>>>(x, 1ll << 40, out);
  OK(cudaGetLastError());  // A launch does not wait to see how it ends.
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost) == cudaErrorIllegalAddress);
  CHECK(cudaMalloc(&x, 16) == cudaErrorIllegalAddress);
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream) == cudaErrorIllegalAddress);
  read<<<1, 1>>>(x, 0, out);
  CHECK(cudaPeekAtLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress") == 0);
  printf("PASS\n");
  return 0;
}
