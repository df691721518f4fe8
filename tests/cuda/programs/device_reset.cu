// A reset frees all; the program goes on as if it had just begun.
#include "check.h"

__device__ int counter = 5;
__global__ void step(int* out) { *out = ++counter; }

int main() {
  for (int round = 0; round < 3; ++round) {
    int* out = nullptr;
    int value = 0;
    cudaStream_t stream;
    size_t before = 0, after = 0, total = 0;
    OK(cudaSetDevice(0));
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&out, size_t{64} << 20));
    OK(cudaMemGetInfo(&after, &total));
    CHECK(after <= before - (size_t{64} << 20));
    OK(cudaStreamCreate(&stream));
    step<<<1, 1, 0, stream>>>(out);
    OK(cudaMemcpyAsync(&value, out, sizeof value, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(value == 6);  // Variables begin anew as well.
    OK(cudaDeviceReset());
    OK(cudaSetDevice(0));
    GIVES(cudaErrorInvalidValue, cudaFree(out));
    GIVES(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(stream));
  }
  return pass();
}
