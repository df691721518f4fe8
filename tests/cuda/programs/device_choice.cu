// A device is chosen by a list, initialised with flags, and kept by each thread for itself.

// Devices: 2
#include <thread>

#include "check.h"

__global__ void put(int* where, int value) { *where = value; }

static void use(int device) {
  int* x;
  int host = 0, has = -1;
  OK(cudaMalloc(&x, sizeof *x));
  put<<<1, 1>>>(x, 40 + device);
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 40 + device);
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, x));
  CHECK(about.device == device && about.type == cudaMemoryTypeDevice);
  OK(cudaGetDevice(&has));
  CHECK(has == device);
  OK(cudaFree(x));
}

int main() {
  int count = 0;
  OK(cudaGetDeviceCount(&count));
  const int other = count - 1;
  // The first of the list is what a program gets that sets no device.
  int list[] = {other};
  OK(cudaSetValidDevices(list, 1));
  use(other);
  int wrong[] = {0, count};
  GIVES(cudaErrorInvalidDevice, cudaSetValidDevices(wrong, 2));
  OK(cudaSetValidDevices(nullptr, 0));

  OK(cudaSetDevice(0));
  use(0);
  // Another thread begins with device 0 of its own and leaves this one's alone.
  OK(cudaSetDevice(other));
  std::thread([&] {
    OK(cudaSetDevice(0));
    use(0);
  }).join();
  use(other);

  // Initialising does not choose; flags are taken only where they are said to be valid.
  unsigned flags = 0;
  OK(cudaInitDevice(0, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid));
  int now = -1;
  OK(cudaGetDevice(&now));
  CHECK(now == other);
  OK(cudaSetDevice(0));
  OK(cudaGetDeviceFlags(&flags));
  CHECK((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleBlockingSync);
  GIVES(cudaErrorInvalidDevice, cudaInitDevice(count, 0, 0));
  use(0);
  return pass();
}
