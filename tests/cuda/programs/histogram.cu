// A histogram: shared counters for each block, then global ones; and the same by a direct atomic.
#include <vector>

#include "check.h"

constexpr int kBins = 64;

__global__ void by_block(const unsigned char* data, int n, unsigned* bins) {
  __shared__ unsigned local[kBins];
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[data[i] % kBins], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__global__ void direct(const unsigned char* data, int n, unsigned* bins, unsigned* largest) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicInc(&bins[data[i] % kBins], 0xFFFFFFFFu);
  atomicMax(largest, (unsigned)data[i]);
}

int main() {
  const int n = 200001;
  std::vector<unsigned char> data(n);
  std::vector<unsigned> want(kBins), got(kBins);
  unsigned state = 12345, largest = 0;
  for (auto& value : data) {
    state = state * 1664525u + 1013904223u;
    value = state >> 24;
    want[value % kBins]++;
    largest = value > largest ? value : largest;
  }
  unsigned char* device;
  unsigned *bins, *device_largest;
  OK(cudaMalloc(&device, n));
  OK(cudaMalloc(&bins, kBins * sizeof(unsigned)));
  OK(cudaMalloc(&device_largest, sizeof(unsigned)));
  OK(cudaMemcpy(device, data.data(), n, cudaMemcpyHostToDevice));
  OK(cudaMemset(bins, 0, kBins * sizeof(unsigned)));
  by_block<<<30, 128>>>(device, n, bins);
  OK(cudaMemcpy(got.data(), bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(got == want);
  OK(cudaMemset(bins, 0, kBins * sizeof(unsigned)));
  OK(cudaMemset(device_largest, 0, sizeof(unsigned)));
  direct<<<(n + 255) / 256, 256>>>(device, n, bins, device_largest);
  OK(cudaMemcpy(got.data(), bins, kBins * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(got == want);
  unsigned found = 0;
  OK(cudaMemcpy(&found, device_largest, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(found == largest);
  return pass();
}
