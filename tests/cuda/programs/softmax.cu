// Softmax of rows: a warp a row with shuffles, and a block a row with shared memory and expf.
#include <cmath>
#include <vector>

#include "check.h"

__global__ void by_warp(const float* in, float* out, int rows, int columns) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* x = in + row * columns;
  float largest = -INFINITY, sum = 0;
  for (int i = lane; i < columns; i += 32) largest = fmaxf(largest, x[i]);
  for (int step = 16; step > 0; step /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, step));
  for (int i = lane; i < columns; i += 32) sum += expf(x[i] - largest);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
  for (int i = lane; i < columns; i += 32) out[row * columns + i] = expf(x[i] - largest) / sum;
}

__global__ void by_block(const float* in, float* out, int columns) {
  extern __shared__ float scratch[];
  const float* x = in + blockIdx.x * columns;
  float value = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) value = fmaxf(value, x[i]);
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step)
      scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + step]);
    __syncthreads();
  }
  const float largest = scratch[0];
  __syncthreads();
  value = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) value += __expf(x[i] - largest);
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) scratch[threadIdx.x] += scratch[threadIdx.x + step];
    __syncthreads();
  }
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    out[blockIdx.x * columns + i] = __fdividef(__expf(x[i] - largest), scratch[0]);
}

static void compare(const std::vector<float>& in, const std::vector<float>& got, int columns,
                    double tolerance) {
  for (size_t row = 0; row < in.size() / columns; row++) {
    const float* x = &in[row * columns];
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < columns; i++) largest = std::max(largest, (double)x[i]);
    for (int i = 0; i < columns; i++) sum += std::exp(x[i] - largest);
    for (int i = 0; i < columns; i++) {
      const double want = std::exp(x[i] - largest) / sum;
      CHECK(std::fabs(got[row * columns + i] - want) <= tolerance * want);
    }
  }
}

int main() {
  const int rows = 37, columns = 203, n = rows * columns;
  std::vector<float> in(n), got(n);
  for (int i = 0; i < n; i++) in[i] = (float)((i * 7919) % 1000) / 100.0f - 5.0f;
  float *device_in, *device_out;
  OK(cudaMalloc(&device_in, n * sizeof(float)));
  OK(cudaMalloc(&device_out, n * sizeof(float)));
  OK(cudaMemcpy(device_in, in.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  by_warp<<<(rows + 3) / 4, 128>>>(device_in, device_out, rows, columns);
  OK(cudaMemcpy(got.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
  compare(in, got, columns, 1e-5);
  by_block<<<rows, 64, 64 * sizeof(float)>>>(device_in, device_out, columns);
  OK(cudaMemcpy(got.data(), device_out, n * sizeof(float), cudaMemcpyDeviceToHost));
  compare(in, got, columns, 1e-4);
  return pass();
}
