// Bytes, rows and boxes are set, at any alignment, blocking or not, and nothing beside them.
#include <cstring>

#include "check.h"

constexpr size_t kSize = 64 << 10;
static unsigned char host[kSize];

int main() {
  unsigned char* x;
  cudaStream_t s;
  OK(cudaMalloc(&x, kSize));
  OK(cudaStreamCreate(&s));
  for (bool async : {false, true}) {
    OK(cudaMemset(x, 0x10, kSize));
    OK(cudaDeviceSynchronize());
    for (size_t i = 0; i < 10; ++i) {
      unsigned char* const at = x + i * 1000 + i;
      // The value is a byte's: what is above it does not count.
      if (async) {
        OK(cudaMemsetAsync(at, int(0x700 + i), 17 * i, s));
      } else {
        OK(cudaMemset(at, int(0x700 + i), 17 * i));
      }
    }
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, x, kSize, cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < kSize; ++k) {
      const size_t i = k / 1000, place = k % 1000;
      const bool inside = i < 10 && place >= i && place < i + 17 * i;
      CHECK(host[k] == (inside ? i : 0x10));
    }

    if (async) {
      OK(cudaMemset2DAsync(x + 5, 128, 0x21, 100, 30, s));
    } else {
      OK(cudaMemset2D(x + 5, 128, 0x21, 100, 30));
    }
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, x, kSize, cudaMemcpyDeviceToHost));
    for (size_t row = 0; row < 30; ++row)
      for (size_t k = 0; k < 128; ++k) CHECK((host[row * 128 + k] == 0x21) == (k >= 5 && k < 105));

    OK(cudaMemset(x, 0, kSize));
    OK(cudaDeviceSynchronize());
    cudaPitchedPtr box = make_cudaPitchedPtr(x, 64, 64, 10);
    const cudaExtent extent = make_cudaExtent(50, 7, 4);
    if (async) {
      OK(cudaMemset3DAsync(box, 0x33, extent, s));
    } else {
      OK(cudaMemset3D(box, 0x33, extent));
    }
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(host, x, kSize, cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < kSize; ++k) {
      const size_t column = k % 64, row = k / 64 % 10, slice = k / 640;
      CHECK(host[k] == (column < 50 && row < 7 && slice < 4 ? 0x33 : 0));
    }
  }
  GIVES(cudaErrorInvalidValue, cudaMemset(nullptr, 0, 16));
  OK(cudaMemset(x, 1, 0));
  OK(cudaFree(x));
  OK(cudaStreamDestroy(s));
  return pass();
}
