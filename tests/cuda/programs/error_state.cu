// Every error has its name and its text; the last error is kept until it is taken, is not changed
// by calls that go well, and a launch leaves its own.
#include <cstring>
#include <thread>

#include "check.h"

__global__ void nothing() {}

int main() {
  CHECK(!strcmp(cudaGetErrorName(cudaSuccess), "cudaSuccess"));
  CHECK(!strcmp(cudaGetErrorString(cudaSuccess), "no error"));
  CHECK(!strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue"));
  CHECK(!strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument"));
  CHECK(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
  CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
  CHECK(
      !strcmp(cudaGetErrorString(cudaErrorInvalidConfiguration), "invalid configuration argument"));
  CHECK(!strcmp(cudaGetErrorString(cudaErrorNotSupported), "operation not supported"));
  CHECK(!strcmp(cudaGetErrorName(cudaError_t(12345)), "unrecognized error code"));
  CHECK(!strcmp(cudaGetErrorString(cudaError_t(12345)), "unrecognized error code"));

  CHECK(cudaGetLastError() == cudaSuccess && cudaPeekAtLastError() == cudaSuccess);
  void* x = nullptr;
  CHECK(cudaMalloc(nullptr, 16) == cudaErrorInvalidValue);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  OK(cudaMalloc(&x, 16));
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  // A later error takes its place.
  CHECK(cudaMalloc(&x, size_t{1} << 60) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess && cudaPeekAtLastError() == cudaSuccess);

  nothing<<<1, 2048>>>();
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  // Another thread has none of it.
  std::thread([] { CHECK(cudaGetLastError() == cudaSuccess); }).join();
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  OK(cudaDeviceSynchronize());
  nothing<<<1, 32>>>();
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  return pass();
}
