// Many copies by one call: each arrives, in the order of the stream; a batch that is wrong is
// refused as a whole.
#include <cstring>

#include "check.h"

int main() {
  constexpr int kCount = 6;
  constexpr size_t kSize = 1000;
  static char from[kCount][kSize], to[kCount][kSize];
  char* x[kCount];
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  for (int i = 0; i < kCount; ++i) {
    memset(from[i], i + 1, kSize);
    OK(cudaMalloc(&x[i], kSize));
    OK(cudaMemset(x[i], 0, kSize));
  }
  OK(cudaDeviceSynchronize());

  const void* sources[kCount];
  void* targets[kCount];
  size_t sizes[kCount], first = 0;
  for (int i = 0; i < kCount; ++i) {
    sources[i] = from[i];
    targets[i] = x[i];
    sizes[i] = kSize - i;
  }
  cudaMemcpyAttributes how = {};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  OK(cudaMemcpyBatchAsync(targets, sources, sizes, kCount, &how, &first, 1, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < kCount; ++i) {
    OK(cudaMemcpy(to[i], x[i], kSize, cudaMemcpyDeviceToHost));
    for (size_t k = 0; k < kSize; ++k) CHECK(to[i][k] == (k < kSize - i ? i + 1 : 0));
  }
  // Back again; every second in another way.
  memset(to, 0, sizeof to);
  const void* back_from[kCount];
  void* back_to[kCount];
  for (int i = 0; i < kCount; ++i) {
    back_from[i] = x[kCount - 1 - i];
    back_to[i] = to[i];
    sizes[i] = 100;
  }
  cudaMemcpyAttributes ways[2] = {how, how};
  ways[1].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
  size_t starts[2] = {0, kCount / 2};
  OK(cudaMemcpyBatchAsync(back_to, back_from, sizes, kCount, ways, starts, 2, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < kCount; ++i) CHECK(to[i][0] == kCount - i && to[i][99] == kCount - i);
  GIVES(cudaErrorInvalidValue,
        cudaMemcpyBatchAsync(back_to, back_from, sizes, 0, ways, starts, 2, s));

  // Boxes: a host box of 8 x 4 x 2 into rows of 32 on the device, and back.
  static unsigned char box[2][4][8], again[2][4][8];
  for (int i = 0; i < 64; ++i) (&box[0][0][0])[i] = static_cast<unsigned char>(i + 1);
  unsigned char* device;
  OK(cudaMalloc(&device, 32 * 5 * 2));
  OK(cudaMemset(device, 0xee, 32 * 5 * 2));
  OK(cudaDeviceSynchronize());
  cudaMemcpy3DBatchOp operations[2] = {};
  operations[0].src.type = operations[0].dst.type = cudaMemcpyOperandTypePointer;
  operations[0].src.op.ptr.ptr = box;
  operations[0].src.op.ptr.locHint = {cudaMemLocationTypeHost, 0};
  operations[0].dst.op.ptr.ptr = device;
  operations[0].dst.op.ptr.rowLength = 32;
  operations[0].dst.op.ptr.layerHeight = 5;
  operations[0].dst.op.ptr.locHint = {cudaMemLocationTypeDevice, 0};
  operations[0].extent = make_cudaExtent(8, 4, 2);
  operations[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  operations[1] = operations[0];
  operations[1].src = operations[0].dst;
  operations[1].dst = operations[0].src;
  operations[1].dst.op.ptr.ptr = again;
  OK(cudaMemcpy3DBatchAsync(2, operations, 0, s));
  OK(cudaStreamSynchronize(s));
  CHECK(memcmp(box, again, sizeof box) == 0);
  unsigned char all[2][5][32];
  OK(cudaMemcpy(all, device, sizeof all, cudaMemcpyDeviceToHost));
  for (int k = 0; k < 2; ++k)
    for (int j = 0; j < 5; ++j)
      for (int i = 0; i < 32; ++i)
        CHECK(all[k][j][i] == (j < 4 && i < 8 ? (k * 4 + j) * 8 + i + 1 : 0xee));
  OK(cudaFree(device));
  for (char* each : x) OK(cudaFree(each));
  OK(cudaStreamDestroy(s));
  return pass();
}
