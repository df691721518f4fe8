// Calls that the compiler cannot resolve: through a table of functions, virtual ones, and
// recursion.
#include "check.h"

using Operation = int (*)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ Operation operations[] = {add, multiply, subtract};

struct Shape {
  __device__ virtual int area() const = 0;
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int side) : side(side) {}
  __device__ int area() const override { return side * side; }
};
struct Box : Shape {
  int width, height;
  __device__ Box(int width, int height) : width(width), height(height) {}
  __device__ int area() const override { return width * height; }
};

__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__global__ void run(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  int value = operations[i % 3](i, 7);
  const Square square(i);
  const Box box(i, 3);
  const Shape& shape = i % 2 == 0 ? static_cast<const Shape&>(square) : box;
  value += shape.area();
  out[i] = value + fibonacci(i % 10);
}

int host_fibonacci(int n) { return n < 2 ? n : host_fibonacci(n - 1) + host_fibonacci(n - 2); }

int main() {
  int* out = nullptr;
  int got[64];
  OK(cudaMalloc(&out, sizeof got));
  run<<<1, 64>>>(out);
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) {
    const int operation = i % 3 == 0 ? i + 7 : i % 3 == 1 ? i * 7 : i - 7;
    CHECK(got[i] == operation + (i % 2 == 0 ? i * i : i * 3) + host_fibonacci(i % 10));
  }
  return pass();
}
