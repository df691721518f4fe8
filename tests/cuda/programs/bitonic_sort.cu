// A bitonic sort in global memory, a launch a step, and one in shared memory by one block.
#include <algorithm>
#include <vector>

#include "check.h"

__global__ void exchange(unsigned* data, unsigned distance, unsigned length) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
  if (other <= i) return;
  const bool ascending = (i & length) == 0;
  if ((data[i] > data[other]) == ascending) {
    const unsigned kept = data[i];
    data[i] = data[other];
    data[other] = kept;
  }
}

__global__ void sort_block(long long* data) {
  extern __shared__ long long part[];
  part[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned length = 2; length <= blockDim.x; length *= 2)
    for (unsigned distance = length / 2; distance > 0; distance /= 2) {
      __syncthreads();
      const unsigned i = threadIdx.x, other = i ^ distance;
      if (other > i && (part[i] > part[other]) == ((i & length) == 0)) {
        const long long kept = part[i];
        part[i] = part[other];
        part[other] = kept;
      }
    }
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] = part[threadIdx.x];
}

int main() {
  const unsigned n = 1 << 13;
  std::vector<unsigned> data(n), got(n);
  unsigned state = 1;
  for (auto& value : data) value = state = state * 22695477u + 1u;
  unsigned* device;
  OK(cudaMalloc(&device, n * sizeof(unsigned)));
  OK(cudaMemcpy(device, data.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
  for (unsigned length = 2; length <= n; length *= 2)
    for (unsigned distance = length / 2; distance > 0; distance /= 2)
      exchange<<<n / 256, 256>>>(device, distance, length);
  OK(cudaGetLastError());
  OK(cudaMemcpy(got.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  std::sort(data.begin(), data.end());
  CHECK(got == data);

  const int blocks = 5, block = 512;
  std::vector<long long> numbers(blocks * block), back(numbers.size());
  for (auto& value : numbers) value = (long long)(state = state * 22695477u + 1u) - (1ll << 31);
  long long* longs;
  const size_t size = numbers.size() * sizeof(long long);
  OK(cudaMalloc(&longs, size));
  OK(cudaMemcpy(longs, numbers.data(), size, cudaMemcpyHostToDevice));
  sort_block<<<blocks, block, block * sizeof(long long)>>>(longs);
  OK(cudaMemcpy(back.data(), longs, size, cudaMemcpyDeviceToHost));
  for (int b = 0; b < blocks; b++)
    std::sort(numbers.begin() + b * block, numbers.begin() + (b + 1) * block);
  CHECK(back == numbers);
  return pass();
}
