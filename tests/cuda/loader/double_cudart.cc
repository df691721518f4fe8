// A test double of libcudart.so.13: says which functions reached it, and runs the kernel
// `saxpy(int, float, const float*, float*)` on the host.
//
// Nothing of CUDA's headers is used; the signatures are those of nvcc's own calls.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define DOUBLE extern "C" __attribute__((visibility("default")))

namespace {

struct Dim3 {
  unsigned x, y, z;
};

constexpr int kDevices = 3;
void* g_handles[1];
Dim3 g_grid;
Dim3 g_block;

}  // namespace

DOUBLE void** __cudaRegisterFatBinary(void* wrapper) {
  std::printf("registered a fatbin, magic %x\n", *static_cast<uint32_t*>(wrapper));
  return g_handles;
}
DOUBLE void __cudaRegisterFatBinaryEnd(void**) {}
DOUBLE void __cudaUnregisterFatBinary(void**) { std::puts("unregistered"); }
DOUBLE void __cudaInitModule(void**) {}
DOUBLE void __cudaRegisterFunction(void**, const char*, char*, const char* name, int, void*, void*,
                                   void*, void*, int*) {
  std::printf("registered %s\n", name);
}
DOUBLE unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t, void*) {
  g_grid = grid;
  g_block = block;
  return 0;
}
DOUBLE int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes,
                                      void** stream) {
  *grid = g_grid;
  *block = g_block;
  *shared_bytes = 0;
  *stream = nullptr;
  return 0;
}
DOUBLE int __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return 0;
}
DOUBLE int __cudaLaunchKernel(void*, Dim3 grid, Dim3 block, void** arguments, size_t, void*) {
  const int count = *static_cast<int*>(arguments[0]);
  const float factor = *static_cast<float*>(arguments[1]);
  const float* x = *static_cast<float**>(arguments[2]);
  float* y = *static_cast<float**>(arguments[3]);
  for (int i = 0; i < count; ++i) y[i] = factor * x[i] + y[i];
  std::printf("launched %u x %u\n", grid.x, block.x);
  return 0;
}
DOUBLE int cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return 0;
}
DOUBLE int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}
DOUBLE int cudaMallocManaged(void** memory, size_t size_bytes, unsigned) {
  *memory = std::calloc(1, size_bytes);
  return 0;
}
DOUBLE int cudaDeviceSynchronize() { return 0; }
DOUBLE int __cudaGetProcAddress() { return kDevices; }

// More arguments than there are registers for, of both kinds.
DOUBLE double cudaWeigh(int a, int b, int c, int d, int e, int f, int g, int h, double i, double j,
                        double k, double l, double m, double n, double o, double p, double q) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k +
         12 * l + 13 * m + 14 * n + 15 * o + 16 * p + 17 * q;
}
