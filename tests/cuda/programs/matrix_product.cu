// A matrix product by tiles in shared memory, of sizes that no tile divides, is exactly the host's:
// in float and double, and with a template's constant for the tile.
#include <vector>

#include "check.h"

template <typename T, int kTile>
__global__ void multiply(const T* a, const T* b, T* c, int rows, int inner, int columns) {
  __shared__ T left[kTile][kTile], right[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  T sum = 0;
  for (int tile = 0; tile < (inner + kTile - 1) / kTile; tile++) {
    const int x = tile * kTile + threadIdx.x, y = tile * kTile + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = row < rows && x < inner ? a[row * inner + x] : T(0);
    right[threadIdx.y][threadIdx.x] =
        y < inner && column < columns ? b[y * columns + column] : T(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  if (row < rows && column < columns) c[row * columns + column] = sum;
}

// The values are small whole numbers, so every sum is exact in any order.
template <typename T, int kTile>
static void product_of(int rows, int inner, int columns) {
  std::vector<T> a(rows * inner), b(inner * columns), c(rows * columns, T(-1));
  for (size_t i = 0; i < a.size(); i++) a[i] = T((int)(i * 7 % 19) - 9);
  for (size_t i = 0; i < b.size(); i++) b[i] = T((int)(i * 5 % 23) - 11);
  T *device_a, *device_b, *device_c;
  OK(cudaMalloc(&device_a, a.size() * sizeof(T)));
  OK(cudaMalloc(&device_b, b.size() * sizeof(T)));
  OK(cudaMalloc(&device_c, c.size() * sizeof(T)));
  OK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(T), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(T), cudaMemcpyHostToDevice));
  const dim3 block(kTile, kTile);
  const dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  multiply<T, kTile><<<grid, block>>>(device_a, device_b, device_c, rows, inner, columns);
  OK(cudaGetLastError());
  OK(cudaMemcpy(c.data(), device_c, c.size() * sizeof(T), cudaMemcpyDeviceToHost));
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < columns; column++) {
      T want = 0;
      for (int k = 0; k < inner; k++) want += a[row * inner + k] * b[k * columns + column];
      CHECK(c[row * columns + column] == want);
    }
  OK(cudaFree(device_a));
  OK(cudaFree(device_b));
  OK(cudaFree(device_c));
}

int main() {
  product_of<float, 16>(64, 64, 64);
  product_of<float, 16>(37, 101, 53);
  product_of<double, 16>(50, 33, 47);
  product_of<float, 8>(1, 200, 9);
  product_of<float, 32>(70, 5, 33);
  return pass();
}
