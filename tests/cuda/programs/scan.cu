// Inclusive prefix sums of any length: scan of blocks, scan of their sums, addition. And an
// exclusive scan of one block in shared memory (up-sweep, down-sweep).
#include <vector>

#include "check.h"

constexpr int kBlock = 256;

__global__ void scan_blocks(const int* in, int* out, int* sums, int n) {
  __shared__ int totals[kBlock / 32];
  const int i = blockIdx.x * kBlock + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int value = i < n ? in[i] : 0;
  for (int step = 1; step < 32; step *= 2) {
    const int left = __shfl_up_sync(0xFFFFFFFF, value, step);
    if (lane >= step) value += left;
  }
  if (lane == 31) totals[warp] = value;
  __syncthreads();
  for (int w = 0; w < warp; w++) value += totals[w];
  if (i < n) out[i] = value;
  if (sums && threadIdx.x == kBlock - 1) sums[blockIdx.x] = value;
}

__global__ void add_before(int* out, const int* sums, int n) {
  const int i = blockIdx.x * kBlock + threadIdx.x;
  if (blockIdx.x > 0 && i < n) out[i] += sums[blockIdx.x - 1];
}

static void scan_on_device(const int* in, int* out, int n) {
  const int blocks = (n + kBlock - 1) / kBlock;
  if (blocks == 1) {
    scan_blocks<<<1, kBlock>>>(in, out, nullptr, n);
    return;
  }
  int* sums;
  OK(cudaMalloc(&sums, blocks * sizeof(int)));
  scan_blocks<<<blocks, kBlock>>>(in, out, sums, n);
  scan_on_device(sums, sums, blocks);
  add_before<<<blocks, kBlock>>>(out, sums, n);
  OK(cudaFree(sums));
}

__global__ void sweep(int* data) {
  __shared__ int x[2 * kBlock];
  const int t = threadIdx.x;
  x[2 * t] = data[2 * t], x[2 * t + 1] = data[2 * t + 1];
  int offset = 1;
  for (int d = kBlock; d > 0; d /= 2, offset *= 2) {
    __syncthreads();
    if (t < d) x[offset * (2 * t + 2) - 1] += x[offset * (2 * t + 1) - 1];
  }
  if (t == 0) x[2 * kBlock - 1] = 0;
  for (int d = 1; d < 2 * kBlock; d *= 2) {
    offset /= 2;
    __syncthreads();
    if (t < d) {
      const int a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1, kept = x[a];
      x[a] = x[b];
      x[b] += kept;
    }
  }
  __syncthreads();
  data[2 * t] = x[2 * t], data[2 * t + 1] = x[2 * t + 1];
}

int main() {
  const int sizes[] = {1, 32, 255, 256, 257, 70000};
  for (int n : sizes) {
    std::vector<int> in(n), got(n);
    for (int i = 0; i < n; i++) in[i] = (i * 37) % 11 - 3;
    int* device;
    OK(cudaMalloc(&device, n * sizeof(int)));
    OK(cudaMemcpy(device, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    scan_on_device(device, device, n);
    OK(cudaMemcpy(got.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0, sum = 0; i < n; i++) CHECK(got[i] == (sum += in[i]));
    OK(cudaFree(device));
  }
  std::vector<int> in(2 * kBlock), got(2 * kBlock);
  for (int i = 0; i < 2 * kBlock; i++) in[i] = i % 5 + 1;
  int* device;
  OK(cudaMalloc(&device, in.size() * sizeof(int)));
  OK(cudaMemcpy(device, in.data(), in.size() * sizeof(int), cudaMemcpyHostToDevice));
  sweep<<<1, kBlock>>>(device);
  OK(cudaMemcpy(got.data(), device, in.size() * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0, sum = 0; i < 2 * kBlock; sum += in[i++]) CHECK(got[i] == sum);
  return pass();
}
