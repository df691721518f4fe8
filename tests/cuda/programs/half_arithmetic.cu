// Half and bfloat16: arithmetic, packed pairs, comparisons and conversions against exact values.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "check.h"

__global__ void run(float* out) {
  const __half a = __float2half(1.5f), b = __float2half(0.25f);
  out[0] = __half2float(__hadd(a, b));
  out[1] = __half2float(__hmul(a, b));
  out[2] = __half2float(__hfma(a, b, a));
  out[3] = __half2float(__hsub(b, a));
  const __half2 pair = __hadd2(__floats2half2_rn(1.f, 2.f), __floats2half2_rn(10.f, 20.f));
  out[4] = __low2float(pair);
  out[5] = __high2float(pair);
  out[6] = __hgt(a, b) ? 1.f : 0.f;
  out[7] = __half2float(__float2half_rn(2049.f));  // To even: 2048.
  out[8] = __half2float(__float2half_rz(65519.f));
  out[9] = __half2float(__float2half(70000.f));  // Infinity.
  const __nv_bfloat16 c = __float2bfloat16(3.0f), d = __float2bfloat16(0.5f);
  out[10] = __bfloat162float(__hmul(c, d));
  out[11] = __bfloat162float(__hadd(c, d));
  out[12] = __bfloat162float(__float2bfloat16(1.00390625f));  // To even: 1.
  out[13] = static_cast<float>(__half2int_rn(__float2half(2.5f)));
  out[14] = __half2float(hsqrt(__float2half(16.f)));
  out[15] = __half2float(hexp2(__float2half(3.f)));
}

int main() {
  const float want[16] = {1.75f,   .375f,     1.875f, -1.25f, 11.f, 22.f, 1.f, 2048.f,
                          65504.f, HUGE_VALF, 1.5f,   3.5f,   1.f,  2.f,  4.f, 8.f};
  float got[16];
  float* out = nullptr;
  OK(cudaMalloc(&out, sizeof got));
  run<<<1, 1>>>(out);
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 16; ++i) {
    if (got[i] != want[i]) printf("%d: %g instead of %g\n", i, got[i], want[i]);
    CHECK(got[i] == want[i]);
  }
  return pass();
}
