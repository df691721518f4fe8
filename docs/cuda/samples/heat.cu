// Heat in a plate: two thousand steps, and a look at the largest change after every two hundredth.
#include <cuda_runtime.h>

#include <cstdio>
#include <utility>

#define OK(call)                                                                    \
  do {                                                                              \
    const cudaError_t error = (call);                                               \
    if (error != cudaSuccess) {                                                     \
      printf("FAIL line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error)); \
      return 1;                                                                     \
    }                                                                               \
  } while (0)

constexpr int kSide = 48;

// One edge is kept at 1, the others at 0. `change`: the largest one, as bits: it is never negative.
__global__ void step(const float* from, float* to, int* change) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x == 0 || y == 0 || x >= kSide - 1 || y >= kSide - 1) return;
  const int i = y * kSide + x;
  to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - kSide] + from[i + kSide]);
  atomicMax(change, __float_as_int(fabsf(to[i] - from[i])));
}

int main() {
  const int steps = 2000, look_every = 200;
  const size_t size = kSide * kSide * sizeof(float);
  float first_row[kSide], change = 0;
  for (float& value : first_row) value = 1;
  float *from, *to;
  int* device_change;
  OK(cudaMalloc(&from, size));
  OK(cudaMalloc(&to, size));
  OK(cudaMalloc(&device_change, sizeof(int)));
  for (float* plate : {from, to}) {
    OK(cudaMemset(plate, 0, size));
    OK(cudaMemcpy(plate, first_row, sizeof first_row, cudaMemcpyHostToDevice));
  }
  bool falls = true;
  for (int i = 1; i <= steps; i++) {
    OK(cudaMemsetAsync(device_change, 0, sizeof(int)));
    step<<<dim3(kSide / 16, kSide / 16), dim3(16, 16)>>>(from, to, device_change);
    OK(cudaGetLastError());
    std::swap(from, to);
    if (i % look_every != 0) continue;
    const float before = change;
    OK(cudaMemcpy(&change, device_change, sizeof change, cudaMemcpyDeviceToHost));
    falls = falls && (i == look_every || change < before);
  }
  float middle = 0;
  OK(cudaMemcpy(&middle, from + kSide / 2 * kSide + kSide / 2, sizeof middle,
                cudaMemcpyDeviceToHost));
  OK(cudaFree(from));
  OK(cudaFree(to));
  OK(cudaFree(device_change));
  // Near a quarter: by symmetry each edge gives the middle of the plate its quarter.
  const bool right = falls && middle > 0.22f && middle < 0.25f;
  printf("heat: after %d steps the middle is at %.4f, the last change %.1e\n", steps, middle,
         change);
  printf(right ? "PASS\n" : "FAIL\n");
  return !right;
}
