// A load from an address that its type does not divide is error 716.
#include "check.h"

__global__ void read_at(const char* bytes, int offset, int* out) {
  *out = *reinterpret_cast<const int*>(bytes + offset);
}

int main() {
  char* bytes = nullptr;
  int* out = nullptr;
  OK(cudaMalloc(&bytes, 64));
  OK(cudaMalloc(&out, sizeof(int)));
  OK(cudaMemset(bytes, 1, 64));
  read_at<<<1, 1>>>(bytes, 4, out);
  OK(cudaDeviceSynchronize());
  read_at<<<1, 1>>>(bytes, 2, out);
  CHECK(cudaDeviceSynchronize() == cudaErrorMisalignedAddress);
  printf("PASS\n");
  return 0;
}
