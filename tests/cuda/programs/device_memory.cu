// Device memory, in one piece or in rows, is of the size it was asked for and nobody else's; what
// is free and what a pointer is, is told right.
#include "check.h"

__global__ void fill(char* base, size_t pitch, int width, int height, int depth) {
  for (int z = 0; z < depth; ++z)
    for (int y = blockIdx.x; y < height; y += gridDim.x)
      for (int x = threadIdx.x; x < width; x += blockDim.x)
        base[(size_t(z) * height + y) * pitch + x] = char(x + 3 * y + 5 * z);
}

int main() {
  size_t free_before = 0, free_after = 0, total = 0;
  OK(cudaFree(nullptr));
  OK(cudaMemGetInfo(&free_before, &total));
  CHECK(free_before > 0 && free_before <= total);
  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  CHECK(total <= p.totalGlobalMem && total > p.totalGlobalMem / 2);

  char* large;
  const size_t size = size_t{64} << 20;
  OK(cudaMalloc(&large, size));
  OK(cudaMemGetInfo(&free_after, &total));
  CHECK(free_after + size / 2 < free_before);
  CHECK(reinterpret_cast<size_t>(large) % 256 == 0);
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, large + size - 1));
  CHECK(about.type == cudaMemoryTypeDevice && about.device == 0);
  CHECK(about.devicePointer == large + size - 1);
  OK(cudaFree(large));
  OK(cudaMemGetInfo(&free_after, &total));
  CHECK(free_after + size / 2 > free_before);
  GIVES(cudaErrorInvalidValue, cudaMalloc(nullptr, 16));
  GIVES(cudaErrorMemoryAllocation, cudaMalloc(&large, size_t{1} << 60));
  void* zero = &zero;
  OK(cudaMalloc(&zero, 0));
  CHECK(zero == nullptr);
  char local = 0;
  OK(cudaPointerGetAttributes(&about, &local));
  CHECK(about.type == cudaMemoryTypeUnregistered);

  // Pieces that are alive do not overlap.
  char* pieces[20];
  for (int i = 0; i < 20; ++i) {
    OK(cudaMalloc(&pieces[i], 1000 + i));
    OK(cudaMemset(pieces[i], i, 1000 + i));
  }
  char row[1100];
  for (int i = 0; i < 20; ++i) {
    OK(cudaMemcpy(row, pieces[i], 1000 + i, cudaMemcpyDeviceToHost));
    for (int k = 0; k < 1000 + i; ++k) CHECK(row[k] == i);
    OK(cudaFree(pieces[i]));
  }

  const int width = 300, height = 10, depth = 3;
  char* rows;
  size_t pitch = 0;
  OK(cudaMallocPitch(&rows, &pitch, width, height));
  CHECK(pitch >= width && pitch % 32 == 0);
  fill<<<height, 64>>>(rows, pitch, width, height, 1);
  static char host[depth][height][width];
  OK(cudaMemcpy2D(host, width, rows, pitch, width, height, cudaMemcpyDeviceToHost));
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) CHECK(host[0][y][x] == char(x + 3 * y));
  OK(cudaFree(rows));

  cudaPitchedPtr box;
  OK(cudaMalloc3D(&box, make_cudaExtent(width, height, depth)));
  CHECK(box.xsize == width && box.ysize == height && box.pitch >= width);
  fill<<<height, 64>>>(static_cast<char*>(box.ptr), box.pitch, width, height, depth);
  OK(cudaMemcpy2D(host, width, box.ptr, box.pitch, width, height * depth, cudaMemcpyDeviceToHost));
  for (int z = 0; z < depth; ++z)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) CHECK(host[z][y][x] == char(x + 3 * y + 5 * z));
  OK(cudaFree(box.ptr));
  return pass();
}
