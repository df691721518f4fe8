// Square roots, quotients and reciprocals in each rounding mode: nvcc emits helpers named
// $__internal_… for some. The host's arithmetic in the same mode is the reference.
#include <cfenv>
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kResults = 12;

__global__ void compute(const double* x, const double* y, int n, double* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double* r = out + i * kResults;
  r[0] = __dsqrt_rn(x[i]), r[1] = __dsqrt_rz(x[i]), r[2] = __dsqrt_ru(x[i]);
  r[3] = __dsqrt_rd(x[i]), r[4] = __ddiv_rn(x[i], y[i]), r[5] = __ddiv_rz(x[i], y[i]);
  r[6] = __ddiv_ru(x[i], y[i]), r[7] = __ddiv_rd(x[i], y[i]), r[8] = __drcp_rn(y[i]);
  r[9] = __dadd_ru(x[i], y[i]), r[10] = __dmul_rd(x[i], y[i]), r[11] = __fma_rz(x[i], y[i], 1.25);
}

__global__ void compute_float(const float* x, const float* y, int n, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float* r = out + i * kResults;
  r[0] = __fsqrt_rn(x[i]), r[1] = __fsqrt_rz(x[i]), r[2] = __fsqrt_ru(x[i]);
  r[3] = __fsqrt_rd(x[i]), r[4] = __fdiv_rn(x[i], y[i]), r[5] = __fdiv_rz(x[i], y[i]);
  r[6] = __fdiv_ru(x[i], y[i]), r[7] = __fdiv_rd(x[i], y[i]), r[8] = __frcp_rn(y[i]);
  r[9] = __fadd_ru(x[i], y[i]), r[10] = __fmul_rd(x[i], y[i]), r[11] = __fmaf_rz(x[i], y[i], 1.25f);
}

// The host's results; volatile, so that nothing is computed before the mode is set.
template <typename T>
static void on_host(T x_value, T y_value, T* want) {
  static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
  volatile T x = x_value, y = y_value;
  for (int m = 0; m < 4; m++) {
    fesetround(modes[m]);
    want[m] = std::sqrt(x);
    want[4 + m] = x / y;
  }
  fesetround(FE_TONEAREST);
  want[8] = T(1) / y;
  fesetround(FE_UPWARD);
  want[9] = x + y;
  fesetround(FE_DOWNWARD);
  want[10] = x * y;
  fesetround(FE_TOWARDZERO);
  want[11] = std::fma(x, y, T(1.25));
  fesetround(FE_TONEAREST);
}

template <typename T, typename Kernel>
static void compare(Kernel kernel) {
  const int n = 1000;
  std::vector<T> x(n), y(n), got(n * kResults);
  unsigned state = 99;
  for (int i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    x[i] = std::ldexp(T(state) / T(3), (int)(state % 40) - 40);
    state = state * 1664525u + 1013904223u;
    y[i] = std::ldexp(T(state) / T(7), (int)(state % 30) - 35) + T(0.001);
  }
  T *device_x, *device_y, *out;
  OK(cudaMalloc(&device_x, n * sizeof(T)));
  OK(cudaMalloc(&device_y, n * sizeof(T)));
  OK(cudaMalloc(&out, got.size() * sizeof(T)));
  OK(cudaMemcpy(device_x, x.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(device_y, y.data(), n * sizeof(T), cudaMemcpyHostToDevice));
  kernel<<<(n + 127) / 128, 128>>>(device_x, device_y, n, out);
  OK(cudaMemcpy(got.data(), out, got.size() * sizeof(T), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) {
    T want[kResults];
    on_host(x[i], y[i], want);
    for (int r = 0; r < kResults; r++) CHECK(got[i * kResults + r] == want[r]);
  }
}

int main() {
  compare<double>(compute);
  compare<float>(compute_float);
  return pass();
}
