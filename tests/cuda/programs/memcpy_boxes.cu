// Rows and boxes are copied between pitches, in every kind, with offsets, and nothing beside them;
// a pitch below the width is refused.
#include <cstring>

#include "check.h"

constexpr int kWidth = 37, kHeight = 9, kDepth = 4;
static char a[kDepth][kHeight][kWidth], b[kDepth][kHeight][kWidth];

static cudaMemcpy3DParms box(cudaPitchedPtr to, cudaPitchedPtr from, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p = {};
  p.srcPtr = from;
  p.dstPtr = to;
  p.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  p.kind = kind;
  return p;
}

static void rows(cudaStream_t s, bool async) {
  char *x, *y;
  size_t px, py;
  OK(cudaMallocPitch(&x, &px, kWidth, kHeight));
  OK(cudaMallocPitch(&y, &py, kWidth + 600, kHeight + 1));
  CHECK(px != py);
  memset(b, 0, sizeof b);
  const auto move = [&](void* to, size_t tp, const void* from, size_t fp, cudaMemcpyKind kind) {
    if (async) {
      OK(cudaMemcpy2DAsync(to, tp, from, fp, kWidth, kHeight, kind, s));
    } else {
      OK(cudaMemcpy2D(to, tp, from, fp, kWidth, kHeight, kind));
    }
  };
  OK(cudaMemset(y, 0x11, py * (kHeight + 1)));
  OK(cudaDeviceSynchronize());
  move(x, px, a, kWidth, cudaMemcpyHostToDevice);
  move(y + py + 3, py, x, px, cudaMemcpyDeviceToDevice);
  move(b, kWidth, y + py + 3, py, async ? cudaMemcpyDefault : cudaMemcpyDeviceToHost);
  OK(cudaStreamSynchronize(s));
  CHECK(memcmp(a[0], b[0], sizeof a[0]) == 0);
  // The bytes around them.
  static char all[4096 * 4];
  CHECK(py * (kHeight + 1) <= sizeof all);
  OK(cudaMemcpy(all, y, py * (kHeight + 1), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < py; ++i) CHECK(all[i] == 0x11);
  for (int i = 1; i <= kHeight; ++i) {
    CHECK(all[i * py + 2] == 0x11 && all[i * py + 3] == a[0][i - 1][0]);
    CHECK(all[i * py + 3 + kWidth] == 0x11);
  }
  memset(b, 0, sizeof b);
  move(b, kWidth, a, kWidth, cudaMemcpyHostToHost);
  OK(cudaStreamSynchronize(s));
  CHECK(memcmp(a[0], b[0], sizeof a[0]) == 0);
  GIVES(cudaErrorInvalidPitchValue,
        cudaMemcpy2D(x, kWidth - 1, a, kWidth, kWidth, kHeight, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidMemcpyDirection,
        cudaMemcpy2DAsync(x, px, a, kWidth, kWidth, kHeight, cudaMemcpyKind(8), s));
  OK(cudaFree(x));
  OK(cudaFree(y));
}

static void boxes(cudaStream_t s, bool async) {
  cudaPitchedPtr x, y;
  OK(cudaMalloc3D(&x, make_cudaExtent(kWidth, kHeight, kDepth)));
  OK(cudaMalloc3D(&y, make_cudaExtent(kWidth + 700, kHeight + 2, kDepth + 1)));
  const auto move = [&](const cudaMemcpy3DParms& p) {
    if (async) {
      OK(cudaMemcpy3DAsync(&p, s));
    } else {
      OK(cudaMemcpy3D(&p));
    }
  };
  memset(b, 0, sizeof b);
  const cudaPitchedPtr host_a = make_cudaPitchedPtr(a, kWidth, kWidth, kHeight);
  const cudaPitchedPtr host_b = make_cudaPitchedPtr(b, kWidth, kWidth, kHeight);
  move(box(x, host_a, cudaMemcpyHostToDevice));
  cudaMemcpy3DParms inner = box(y, x, cudaMemcpyDeviceToDevice);
  inner.dstPos = make_cudaPos(11, 2, 1);
  move(inner);
  cudaMemcpy3DParms down = box(host_b, y, async ? cudaMemcpyDefault : cudaMemcpyDeviceToHost);
  down.srcPos = make_cudaPos(11, 2, 1);
  move(down);
  OK(cudaStreamSynchronize(s));
  CHECK(memcmp(a, b, sizeof a) == 0);
  // A corner of it alone.
  memset(b, 0, sizeof b);
  down = box(host_b, x, cudaMemcpyDeviceToHost);
  down.srcPos = make_cudaPos(5, 1, 2);
  down.dstPos = make_cudaPos(1, 3, 0);
  down.extent = make_cudaExtent(10, 4, 2);
  move(down);
  OK(cudaStreamSynchronize(s));
  for (int k = 0; k < kDepth; ++k)
    for (int j = 0; j < kHeight; ++j)
      for (int i = 0; i < kWidth; ++i) {
        const bool inside = k < 2 && j >= 3 && j < 7 && i >= 1 && i < 11;
        CHECK(b[k][j][i] == (inside ? a[k + 2][j - 2][i + 4] : 0));
      }
  GIVES(cudaErrorInvalidValue, cudaMemcpy3D(nullptr));
  OK(cudaFree(x.ptr));
  OK(cudaFree(y.ptr));
}

int main() {
  for (size_t i = 0; i < sizeof a; ++i) (&a[0][0][0])[i] = char(i * 31 + 7);
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  for (bool async : {false, true}) {
    rows(s, async);
    boxes(s, async);
  }
  OK(cudaStreamDestroy(s));
  return pass();
}
