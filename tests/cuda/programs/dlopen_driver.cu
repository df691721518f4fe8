// Programs look for the driver by the name of its development link, and for its functions by
// version.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <cstring>

#include "check.h"

int main() {
  void* const driver = dlopen("libcuda.so", RTLD_NOW);
  CHECK(driver != nullptr);
  CHECK(dlsym(driver, "cuInit") != nullptr && dlsym(driver, "cuNoSuchFunction") == nullptr);
  const auto get =
      reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(driver, "cuGetProcAddress_v2"));
  CHECK(get != nullptr);
  OK(cudaFree(nullptr));
  CUdriverProcAddressQueryResult found;
  void* address = nullptr;
  // One name, two signatures: 12.x takes a device, 13.x a location and flags.
  CHECK(get("cuMemAdvise", &address, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS);
  void* const of_12 = address;
  CHECK(get("cuMemAdvise", &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS);
  CHECK(of_12 != nullptr && address != nullptr && of_12 != address);
  CHECK(get("cuEventElapsedTime", &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &found) ==
        CUDA_SUCCESS);
  CHECK(found == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK(get("cuNoSuchFunction", &address, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &found) ==
        CUDA_SUCCESS);
  CHECK(address == nullptr && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  cudaDriverEntryPointQueryResult entry;
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &address, 12000, cudaEnableDefault, &entry));
  CHECK(entry == cudaDriverEntryPointSuccess);
  CUdeviceptr memory = 0;
  CHECK(reinterpret_cast<PFN_cuMemAlloc_v3020>(address)(&memory, 100) == CUDA_SUCCESS);
  OK(cudaFree(reinterpret_cast<void*>(memory)));
  return pass();
}
