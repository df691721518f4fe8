// Variables of the device and constants are found by their symbol: address, size, copies of all or
// a part, blocking or not; what goes beyond them is refused.
#include <cstring>

#include "check.h"

struct Pair {
  int first;
  double second;
};
__device__ int numbers[10] = {1, 2, 3};
__device__ Pair pair = {7, 0.5};
__constant__ float factors[4] = {1, 2, 4, 8};
static int no_symbol;

__global__ void use(float* out) {
  for (int i = 0; i < 4; ++i) out[i] = factors[i] * numbers[i];
  pair.first += 1;
  pair.second *= 2;
}

int main() {
  size_t size = 0;
  OK(cudaGetSymbolSize(&size, numbers));
  CHECK(size == sizeof numbers);
  OK(cudaGetSymbolSize(&size, pair));
  CHECK(size == sizeof(Pair));
  OK(cudaGetSymbolSize(&size, factors));
  CHECK(size == sizeof factors);
  GIVES(cudaErrorInvalidSymbol, cudaGetSymbolSize(&size, &no_symbol));

  void* address = nullptr;
  int back[10];
  OK(cudaGetSymbolAddress(&address, numbers));
  OK(cudaMemcpy(back, address, sizeof back, cudaMemcpyDeviceToHost));
  CHECK(back[0] == 1 && back[2] == 3 && back[3] == 0);
  GIVES(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, &no_symbol));

  const int two[2] = {30, 40};
  OK(cudaMemcpyToSymbol(numbers, two, sizeof two, 2 * sizeof(int)));
  OK(cudaMemcpyFromSymbol(back, numbers, sizeof back));
  CHECK(back[1] == 2 && back[2] == 30 && back[3] == 40 && back[4] == 0);
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  const float changed[2] = {10, 20};
  OK(cudaMemcpyToSymbolAsync(factors, changed, sizeof changed, sizeof(float),
                             cudaMemcpyHostToDevice, s));
  float* out;
  float values[4];
  OK(cudaMalloc(&out, sizeof values));
  use<<<1, 1, 0, s>>>(out);
  OK(cudaMemcpyAsync(values, out, sizeof values, cudaMemcpyDeviceToHost, s));
  Pair read = {};
  OK(cudaMemcpyFromSymbolAsync(&read, pair, sizeof read, 0, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  CHECK(values[0] == 1 && values[1] == 20 && values[2] == 600 && values[3] == 320);
  CHECK(read.first == 8 && read.second == 1.0);
  // From the device's own memory, and to it.
  OK(cudaMemcpyToSymbol(factors, out, 2 * sizeof(float), 0, cudaMemcpyDeviceToDevice));
  OK(cudaMemcpyFromSymbol(values, factors, sizeof values));
  CHECK(values[0] == 1 && values[1] == 20 && values[2] == 20 && values[3] == 8);

  GIVES(cudaErrorInvalidValue, cudaMemcpyToSymbol(numbers, back, sizeof back, 4));
  GIVES(cudaErrorInvalidValue, cudaMemcpyFromSymbol(back, numbers, sizeof back + 1));
  GIVES(cudaErrorInvalidMemcpyDirection,
        cudaMemcpyToSymbol(numbers, back, 4, 0, cudaMemcpyDeviceToHost));
  GIVES(cudaErrorInvalidMemcpyDirection,
        cudaMemcpyFromSymbol(back, numbers, 4, 0, cudaMemcpyHostToDevice));
  GIVES(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(&no_symbol, back, 4));
  OK(cudaFree(out));
  OK(cudaStreamDestroy(s));
  return pass();
}
