// Constant and device variables: scalars, arrays, structs, offsets, both ways, on a stream, and
// what is no symbol.
#include <cstring>

#include "check.h"

struct Point {
  double x, y;
  char tag[8];
};
__constant__ Point origin;
__device__ int table[100];
__device__ Point moved;
__device__ const int fixed[3] = {7, 8, 9};

__global__ void work() {
  moved = {origin.x + fixed[0], origin.y + fixed[2], "moved"};
  for (int i = static_cast<int>(threadIdx.x); i < 100; i += 32) table[i] *= 2;
}

int main() {
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  const Point start = {1.5, -2.5, "start"};
  int numbers[100];
  for (int i = 0; i < 100; ++i) numbers[i] = i;
  OK(cudaMemcpyToSymbolAsync(origin, &start, sizeof start, 0, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyToSymbolAsync(table, numbers, 50 * sizeof(int), 50 * sizeof(int),
                             cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyToSymbolAsync(table, numbers, 50 * sizeof(int), 0, cudaMemcpyHostToDevice, stream));
  work<<<1, 32, 0, stream>>>();
  Point got;
  OK(cudaMemcpyFromSymbolAsync(&got, moved, sizeof got, 0, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(got.x == 8.5 && got.y == 6.5 && strcmp(got.tag, "moved") == 0);
  int back[10];
  OK(cudaMemcpyFromSymbol(back, table, sizeof back, 60 * sizeof(int)));
  for (int i = 0; i < 10; ++i) CHECK(back[i] == 2 * (10 + i));
  void* address = nullptr;
  size_t size = 0;
  OK(cudaGetSymbolAddress(&address, table));
  OK(cudaGetSymbolSize(&size, table));
  CHECK(size == sizeof numbers);
  OK(cudaMemcpy(numbers, address, sizeof numbers, cudaMemcpyDeviceToHost));
  CHECK(numbers[49] == 98 && numbers[50] == 0 && numbers[99] == 98);
  GIVES(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, &start));
  GIVES(cudaErrorInvalidValue, cudaMemcpyToSymbol(table, numbers, sizeof numbers, 4));
  GIVES(cudaErrorInvalidMemcpyDirection,
        cudaMemcpyToSymbol(table, numbers, 4, 0, cudaMemcpyDeviceToHost));
  return pass();
}
