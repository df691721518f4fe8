// Memory of the program that is not pinned may be reused, freed or unmapped as soon as an
// asynchronous copy from it has returned, in one piece or in rows, however busy the stream is.
#include <sys/mman.h>

#include <cstring>

#include "check.h"

__global__ void spin(long long ticks) {
  const long long begin = clock64();
  while (clock64() - begin < ticks) {
  }
}
__global__ void count(const unsigned* x, int n, unsigned value, unsigned* wrong) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    if (x[i] != value + i % 7) atomicAdd(wrong, 1u);
}

static void fill(unsigned* x, int n, unsigned value) {
  for (int i = 0; i < n; i++) x[i] = value + i % 7;
}

int main() {
  const int sizes[] = {1, 7, 1000, 16384, 16385, 300000};
  cudaStream_t streams[2];
  OK(cudaStreamCreate(&streams[0]));
  OK(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
  unsigned *wrong, found = 1;
  OK(cudaMalloc(&wrong, sizeof *wrong));
  OK(cudaMemset(wrong, 0, sizeof *wrong));
  OK(cudaDeviceSynchronize());
  for (int round = 0; round < 4; round++)
    for (int n : sizes) {
      cudaStream_t stream = streams[round % 2];
      const size_t size = n * sizeof(unsigned);
      const unsigned value = 0x01020300u * (round + 1);
      unsigned *x, *host;
      OK(cudaMalloc(&x, size));
      spin<<<1, 1, 0, stream>>>(500000);
      if (round < 2) {
        host = (unsigned*)malloc(size);
        fill(host, n, value);
        OK(cudaMemcpyAsync(x, host, size, cudaMemcpyHostToDevice, stream));
        memset(host, 0xEE, size);
        free(host);
      } else {
        host = (unsigned*)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
        fill(host, n, value);
        OK(cudaMemcpyAsync(x, host, size, cudaMemcpyDefault, stream));
        munmap(host, size);
      }
      count<<<8, 128, 0, stream>>>(x, n, value, wrong);
      OK(cudaStreamSynchronize(stream));
      OK(cudaFree(x));
    }
  // Rows out of a wider host array, which then changes.
  const int rows = 20, columns = 50, wide = 80;
  unsigned host[rows * wide], back[rows * columns], *x;
  size_t pitch;
  for (int i = 0; i < rows * wide; i++) host[i] = i;
  OK(cudaMallocPitch(&x, &pitch, columns * sizeof *x, rows));
  spin<<<1, 1, 0, streams[1]>>>(500000);
  OK(cudaMemcpy2DAsync(x, pitch, host, wide * sizeof *x, columns * sizeof *x, rows,
                       cudaMemcpyHostToDevice, streams[1]));
  memset(host, 0xEE, sizeof host);
  OK(cudaMemcpy2DAsync(back, columns * sizeof *x, x, pitch, columns * sizeof *x, rows,
                       cudaMemcpyDeviceToHost, streams[1]));
  for (int i = 0; i < rows * columns; i++)
    CHECK(back[i] == (unsigned)(i / columns * wide + i % columns));
  // Many from one word that changes between them.
  unsigned word;
  spin<<<1, 1, 0, streams[0]>>>(500000);
  for (unsigned i = 0; i < 500; i++) {
    word = i * 3 + 1;
    OK(cudaMemcpyAsync(x + i, &word, sizeof word, cudaMemcpyHostToDevice, streams[0]));
  }
  word = 0;
  OK(cudaMemcpyAsync(back, x, 500 * sizeof word, cudaMemcpyDeviceToHost, streams[0]));
  for (unsigned i = 0; i < 500; i++) CHECK(back[i] == i * 3 + 1);
  OK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(found == 0);
  return pass();
}
