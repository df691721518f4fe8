// Managed memory is refused by name, as the device's attributes say; so is advice about it, and the
// next good call works.
#include "check.h"

int main() {
  int* x;
  OK(cudaMalloc(&x, 4096));
  const auto works = [&] {
    int host = 0;
    OK(cudaMemset(x, 2, sizeof host));
    OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == 0x02020202);
  };
  int has = -1;
  OK(cudaDeviceGetAttribute(&has, cudaDevAttrConcurrentManagedAccess, 0));
  CHECK(has == 0);
  OK(cudaDeviceGetAttribute(&has, cudaDevAttrManagedMemory, 0));
  CHECK(has == 0);
  void* managed = nullptr;
  GIVES(cudaErrorNotSupported, cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
  works();
  const cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
  GIVES(cudaErrorNotSupported, cudaMemAdvise(x, 4096, cudaMemAdviseSetReadMostly, here));
  works();
  GIVES(cudaErrorNotSupported, cudaMemPrefetchAsync(x, 4096, here, 0, 0));
  works();
  int value = 0;
  GIVES(cudaErrorNotSupported,
        cudaMemRangeGetAttribute(&value, sizeof value, cudaMemRangeAttributeReadMostly, x, 4096));
  GIVES(cudaErrorNotSupported, cudaStreamAttachMemAsync(nullptr, x, 0, cudaMemAttachSingle));
  works();
  OK(cudaFree(x));
  return pass();
}
