// Bytes are copied in every kind, at every alignment, blocking or not; a kind that is wrong or
// unknown is refused and copies nothing.
#include <cstring>

#include "check.h"

int main() {
  const size_t size = 5000;
  char a[size], b[size];
  for (size_t i = 0; i < size; ++i) a[i] = char(i * 13 + 1);
  char *x, *y;
  OK(cudaMalloc(&x, size));
  OK(cudaMalloc(&y, size));
  cudaStream_t s;
  OK(cudaStreamCreate(&s));

  for (int way = 0; way < 4; ++way) {
    const bool any = way & 1, async = way & 2;
    const auto move = [&](void* to, const void* from, cudaMemcpyKind kind) {
      if (any) kind = cudaMemcpyDefault;
      if (async) {
        OK(cudaMemcpyAsync(to, from, size, kind, s));
      } else {
        OK(cudaMemcpy(to, from, size, kind));
      }
    };
    memset(b, 0, size);
    OK(cudaMemset(x, 0, size));
    OK(cudaMemset(y, 0, size));
    OK(cudaDeviceSynchronize());
    move(x, a, cudaMemcpyHostToDevice);
    move(y, x, cudaMemcpyDeviceToDevice);
    move(b, y, cudaMemcpyDeviceToHost);
    OK(cudaStreamSynchronize(s));
    CHECK(memcmp(a, b, size) == 0);
    memset(b, 0, size);
    move(b, a, cudaMemcpyHostToHost);
    OK(cudaStreamSynchronize(s));
    CHECK(memcmp(a, b, size) == 0);
  }

  // Neighbours of what is copied stay as they are.
  for (size_t offset : {0, 1, 3, 8, 511}) {
    for (size_t count : {1, 2, 7, 64, 1000}) {
      OK(cudaMemset(x, 0x77, size));
      OK(cudaMemcpy(x + offset, a + 5, count, cudaMemcpyHostToDevice));
      OK(cudaMemset(y, 0x66, size));
      OK(cudaMemcpy(y + 1, x, size - 1, cudaMemcpyDeviceToDevice));
      OK(cudaMemcpy(b, y, size, cudaMemcpyDeviceToHost));
      CHECK(b[0] == 0x66);
      for (size_t i = 0; i + 1 < size; ++i) {
        const bool inside = i >= offset && i < offset + count;
        CHECK(b[i + 1] == (inside ? a[5 + i - offset] : 0x77));
      }
    }
  }

  OK(cudaMemcpy(x, a, size, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy(x, b, size, cudaMemcpyKind(9)));
  GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpyAsync(x, b, size, cudaMemcpyKind(9), s));
  GIVES(cudaErrorInvalidValue, cudaMemcpy(nullptr, a, size, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(x, b, 0, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(b, x, size, cudaMemcpyDeviceToHost));
  CHECK(memcmp(a, b, size) == 0);
  OK(cudaFree(x));
  OK(cudaFree(y));
  OK(cudaStreamDestroy(s));
  return pass();
}
