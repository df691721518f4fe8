// A library is loaded from PTX in memory or in a file; its kernels and variables are found by name,
// counted and used; what it does not hold is not found, and no kernel of it is left when it is
// gone.
#include <cstring>

#include "check.h"

static const char kCode[] = R"(
.version 6.4
.target sm_75
.address_size 64
.visible .global .align 4 .u32 counter = 40;
.visible .entry first(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u64 %rd3, counter;
  ld.global.u32 %r1, [%rd3];
  add.s32 %r2, %r1, 2;
  st.global.u32 [%rd2], %r2;
  ret;
}
.extern .shared .align 4 .b8 room[];
.visible .entry second(.param .u64 out, .param .u32 value)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

static int run(cudaKernel_t kernel, void** arguments, size_t shared, int* out) {
  int host = -1;
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), arguments, shared,
                      0));
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  return host;
}

int main() {
  cudaLibrary_t library = nullptr;
  OK(cudaLibraryLoadData(&library, kCode, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  OK(cudaLibraryGetKernelCount(&count, library));
  CHECK(count == 2);
  cudaKernel_t both[2] = {}, first = nullptr, second = nullptr;
  OK(cudaLibraryEnumerateKernels(both, 2, library));
  OK(cudaLibraryGetKernel(&first, library, "first"));
  OK(cudaLibraryGetKernel(&second, library, "second"));
  CHECK(first != second);
  CHECK((both[0] == first && both[1] == second) || (both[0] == second && both[1] == first));
  GIVES(cudaErrorSymbolNotFound, cudaLibraryGetKernel(&first, library, "third"));
  OK(cudaLibraryGetKernel(&first, library, "first"));

  int *out, value = 77;
  OK(cudaMalloc(&out, sizeof *out));
  void* arguments[] = {&out, &value};
  CHECK(run(first, arguments, 0, out) == 42);
  CHECK(run(second, arguments, 0, out) == 77);
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, reinterpret_cast<const void*>(second)));
  CHECK(!strcmp(name, "second"));

  int* counter = nullptr;
  size_t size = 0;
  OK(cudaLibraryGetGlobal(reinterpret_cast<void**>(&counter), &size, library, "counter"));
  CHECK(counter != nullptr && size == 4);
  const int more = 100;
  OK(cudaMemcpy(counter, &more, sizeof more, cudaMemcpyHostToDevice));
  CHECK(run(first, arguments, 0, out) == 102);
  void* none = nullptr;
  GIVES(cudaErrorSymbolNotFound, cudaLibraryGetGlobal(&none, &size, library, "nothing"));
  GIVES(cudaErrorSymbolNotFound, cudaLibraryGetManaged(&none, &size, library, "nothing"));
  GIVES(cudaErrorSymbolNotFound, cudaLibraryGetUnifiedFunction(&none, library, "nothing"));

  // Set for one device, it holds there.
  const int bytes = 50 << 10;
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(second), dim3(1), dim3(1), arguments, bytes,
                         0) == cudaErrorInvalidValue);
  (void)cudaGetLastError();
  OK(cudaKernelSetAttributeForDevice(second, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes,
                                     0));
  value = 78;
  CHECK(run(second, arguments, bytes, out) == 78);
  GIVES(cudaErrorInvalidDevice,
        cudaKernelSetAttributeForDevice(second, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes,
                                        1000));

  // The same from a file; a second library has a variable of its own.
  char path[] = "/tmp/rgpu-library-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0 && write(file, kCode, sizeof kCode - 1) == sizeof kCode - 1);
  close(file);
  cudaLibrary_t another = nullptr;
  OK(cudaLibraryLoadFromFile(&another, path, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unlink(path);
  cudaKernel_t its_first = nullptr;
  OK(cudaLibraryGetKernel(&its_first, another, "first"));
  CHECK(run(its_first, arguments, 0, out) == 42);
  CHECK(run(first, arguments, 0, out) == 102);
  cudaLibrary_t missing = nullptr;
  CHECK(cudaLibraryLoadFromFile(&missing, path, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
        cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaLibraryUnload(another));
  CHECK(run(first, arguments, 0, out) == 102);
  OK(cudaLibraryUnload(library));
  GIVES(cudaErrorInvalidValue,
        cudaLibraryLoadData(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0));
  // What is no code is refused when it is loaded, or when something of it is wanted.
  const char wrong[] = ".version 6.4\n.target sm_75\nthis is no PTX";
  CHECK(cudaLibraryLoadData(&library, wrong, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
            cudaSuccess ||
        cudaLibraryGetKernel(&first, library, "first") != cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaFree(out));
  return pass();
}
