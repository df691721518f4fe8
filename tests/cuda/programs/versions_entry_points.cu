// Versions are those of the toolkit and a driver not older; driver functions are found by name and
// version and do what they should; a name that there is not is told apart from an error.
#include <cuda.h>
#include <cudaTypedefs.h>

#include "check.h"

int main() {
  int runtime = 0, driver = 0;
  OK(cudaRuntimeGetVersion(&runtime));
  CHECK(runtime == CUDART_VERSION);
  OK(cudaDriverGetVersion(&driver));
  CHECK(driver >= 13000);
  GIVES(cudaErrorInvalidValue, cudaRuntimeGetVersion(nullptr));
  GIVES(cudaErrorInvalidValue, cudaDriverGetVersion(nullptr));

  void* x = nullptr;
  OK(cudaMalloc(&x, 4096));
  cudaDriverEntryPointQueryResult found;
  void* address = nullptr;
  OK(cudaGetDriverEntryPoint("cuMemsetD8", &address, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess && address != nullptr);
  CHECK(((PFN_cuMemsetD8_v3020)address)((CUdeviceptr)x, 0x5a, 4096) == CUDA_SUCCESS);
  unsigned char host[4096];
  OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  for (unsigned char each : host) CHECK(each == 0x5a);

  // By version: one name, two signatures. In 12.x the context is made by v2, since 13.0 by v4.
  void *old_way = nullptr, *new_way = nullptr;
  OK(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", &old_way, 12000, cudaEnableDefault,
                                      &found));
  CHECK(found == cudaDriverEntryPointSuccess && old_way != nullptr);
  OK(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", &new_way, 13000, cudaEnableDefault,
                                      &found));
  CHECK(found == cudaDriverEntryPointSuccess && new_way != nullptr);
  CUdevice device = -1;
  CHECK(((CUresult (*)(CUdevice*))old_way)(&device) == CUDA_SUCCESS && device == 0);
  device = -1;
  CHECK(((CUresult (*)(CUdevice*, CUcontext))new_way)(&device, nullptr) == CUDA_SUCCESS);
  CHECK(device == 0);

  address = &address;
  OK(cudaGetDriverEntryPoint("cuNoSuchFunction", &address, cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSymbolNotFound && address == nullptr);
  OK(cudaGetDriverEntryPointByVersion("cuLibraryLoadData", &address, 11000, cudaEnableDefault,
                                      &found));
  CHECK(found == cudaDriverEntryPointVersionNotSufficent);
  // A table that nobody has.
  const void* table = nullptr;
  cudaUUID_t unknown = {};
  CHECK(cudaGetExportTable(&table, &unknown) != cudaSuccess && table == nullptr);
  (void)cudaGetLastError();
  OK(cudaFree(x));
  return pass();
}
