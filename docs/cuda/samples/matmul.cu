// A matrix product by tiles in shared memory.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

#define OK(call)                                                                    \
  do {                                                                              \
    const cudaError_t error = (call);                                               \
    if (error != cudaSuccess) {                                                     \
      printf("FAIL line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

constexpr int kTile = 16;

// c = a b, all of them n by n; n is a multiple of kTile.
__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n; tile += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; k++) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

int main() {
  const int n = 192;
  const size_t size = n * n * sizeof(float);
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; i++) a[i] = std::sin(0.1f * i), b[i] = std::cos(0.2f * i);

  float *device_a, *device_b, *device_c;
  OK(cudaMalloc(&device_a, size));
  OK(cudaMalloc(&device_b, size));
  OK(cudaMalloc(&device_c, size));
  OK(cudaMemcpy(device_a, a.data(), size, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device_b, b.data(), size, cudaMemcpyHostToDevice));
  multiply<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(device_a, device_b, device_c, n);
  OK(cudaGetLastError());
  OK(cudaMemcpy(c.data(), device_c, size, cudaMemcpyDeviceToHost));
  OK(cudaFree(device_a));
  OK(cudaFree(device_b));
  OK(cudaFree(device_c));

  double worst = 0;
  for (int row = 0; row < n; row++)
    for (int column = 0; column < n; column++) {
      double want = 0;
      for (int k = 0; k < n; k++) want += (double)a[row * n + k] * b[k * n + column];
      worst = std::fmax(worst, std::fabs(c[row * n + column] - want));
    }
  printf("matmul: a product of %d by %d matrices, at most %.1e away from the host's\n", n, n,
         worst);
  printf(worst < 1e-3 ? "PASS\n" : "FAIL\n");
  return !(worst < 1e-3);
}
