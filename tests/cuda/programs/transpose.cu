// A matrix transposed through padded shared memory, and back without it; sizes with ragged edges.
#include <vector>

#include "check.h"

constexpr int kTile = 32;

__global__ void transpose_tiled(const int* in, int* out, int rows, int columns) {
  __shared__ int tile[kTile][kTile + 1];
  int column = blockIdx.x * kTile + threadIdx.x;
  for (int y = threadIdx.y; y < kTile; y += blockDim.y) {
    const int row = blockIdx.y * kTile + y;
    if (row < rows && column < columns) tile[y][threadIdx.x] = in[row * columns + column];
  }
  __syncthreads();
  column = blockIdx.y * kTile + threadIdx.x;
  for (int y = threadIdx.y; y < kTile; y += blockDim.y) {
    const int row = blockIdx.x * kTile + y;
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][y];
  }
}

__global__ void transpose_plain(const int* in, int* out, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row < rows && column < columns) out[column * rows + row] = in[row * columns + column];
}

static void there_and_back(int rows, int columns) {
  const int n = rows * columns;
  std::vector<int> matrix(n), got(n);
  for (int i = 0; i < n; i++) matrix[i] = i * 7 - 3;
  int *a, *b;
  OK(cudaMalloc(&a, n * sizeof(int)));
  OK(cudaMalloc(&b, n * sizeof(int)));
  OK(cudaMemcpy(a, matrix.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  const dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  transpose_tiled<<<grid, dim3(kTile, 8)>>>(a, b, rows, columns);
  OK(cudaMemcpy(got.data(), b, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < columns; column++)
      CHECK(got[column * rows + row] == matrix[row * columns + column]);
  const dim3 back((rows + 15) / 16, (columns + 15) / 16);
  transpose_plain<<<back, dim3(16, 16)>>>(b, a, columns, rows);
  OK(cudaMemcpy(got.data(), a, n * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(got == matrix);
  OK(cudaFree(a));
  OK(cudaFree(b));
}

int main() {
  there_and_back(32, 32);
  there_and_back(1, 100);
  there_and_back(77, 130);
  there_and_back(256, 192);
  return pass();
}
