// Pinned host memory, allocated or registered, is what it was asked to be, copies both ways, and is
// pinned no longer when it was freed or unregistered.
#include <cstring>

#include "check.h"

static cudaPointerAttributes about(const void* pointer) {
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, pointer));
  return attributes;
}

static void round_trip(char* pinned, size_t size) {
  char* device;
  OK(cudaMalloc(&device, size));
  for (size_t i = 0; i < size; ++i) pinned[i] = char(i * 7 + 3);
  OK(cudaMemcpyAsync(device, pinned, size, cudaMemcpyHostToDevice, 0));
  OK(cudaStreamSynchronize(0));
  memset(pinned, 0, size);
  OK(cudaMemcpyAsync(pinned, device, size, cudaMemcpyDeviceToHost, 0));
  OK(cudaStreamSynchronize(0));
  for (size_t i = 0; i < size; ++i) CHECK(pinned[i] == char(i * 7 + 3));
  OK(cudaFree(device));
}

__global__ void put(int* x) { *x = 4711; }

int main() {
  const size_t size = 1 << 16;
  char *plain, *other;
  void* allocated = nullptr;
  OK(cudaMallocHost(&allocated, size));
  plain = static_cast<char*>(allocated);
  OK(cudaHostAlloc(&other, size, cudaHostAllocPortable | cudaHostAllocWriteCombined));
  GIVES(cudaErrorInvalidValue, cudaHostAlloc(&other, size, 0x100));
  round_trip(plain, size);
  round_trip(other, size);
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, other));
  CHECK(flags & cudaHostAllocPortable);
  CHECK(flags & cudaHostAllocWriteCombined);
  OK(cudaHostGetFlags(&flags, plain));
  CHECK(!(flags & cudaHostAllocWriteCombined));
  CHECK(about(plain).type == cudaMemoryTypeHost &&
        about(plain + size - 1).hostPointer == plain + size - 1);
  OK(cudaFreeHost(other));
  OK(cudaFreeHost(nullptr));

  void* own = nullptr;
  CHECK(posix_memalign(&own, 4096, size) == 0);
  CHECK(about(own).type == cudaMemoryTypeUnregistered);
  GIVES(cudaErrorInvalidValue, cudaHostGetFlags(&flags, own));
  OK(cudaHostRegister(own, size, cudaHostRegisterDefault));
  CHECK(about(own).type == cudaMemoryTypeHost);
  GIVES(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own, size, cudaHostRegisterDefault));
  round_trip(static_cast<char*>(own), size);
  OK(cudaHostUnregister(own));
  CHECK(about(own).type == cudaMemoryTypeUnregistered);
  GIVES(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));
  round_trip(static_cast<char*>(own), size);  // Pageable, as it was.
  free(own);

  // A kernel reaches it where the device says that it can; else that is refused, and nothing more.
  int can = 0;
  OK(cudaDeviceGetAttribute(&can, cudaDevAttrCanMapHostMemory, 0));
  int* mapped;
  void* seen = nullptr;
  OK(cudaHostAlloc(&mapped, sizeof *mapped, cudaHostAllocMapped));
  if (can) {
    OK(cudaHostGetDevicePointer(&seen, mapped, 0));
    put<<<1, 1>>>(static_cast<int*>(seen));
    OK(cudaDeviceSynchronize());
    CHECK(*mapped == 4711);
  } else {
    GIVES(cudaErrorNotSupported, cudaHostGetDevicePointer(&seen, mapped, 0));
  }
  int pageable = 0;
  GIVES(cudaErrorInvalidValue, cudaHostGetDevicePointer(&seen, &pageable, 1));
  OK(cudaFreeHost(mapped));
  round_trip(plain, size);
  OK(cudaFreeHost(plain));
  return pass();
}
