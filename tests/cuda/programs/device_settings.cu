// Flags, limits and cache preferences are kept as they were set, bad ones are refused, and a reset
// frees what the device held and puts the limits back.
#include "check.h"

__global__ void deep(int* out, int levels) {
  int sum = 0;
  for (int i = 0; i <= levels; ++i) sum += i;
  *out = sum;
}

int main() {
  unsigned flags = 0;
  OK(cudaSetDeviceFlags(cudaDeviceScheduleYield));
  OK(cudaGetDeviceFlags(&flags));
  CHECK((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleYield);
  GIVES(cudaErrorInvalidValue, cudaSetDeviceFlags(0x10000));
  OK(cudaGetDeviceFlags(&flags));
  CHECK((flags & cudaDeviceScheduleMask) == cudaDeviceScheduleYield);

  size_t before = 0, value = 0;
  OK(cudaDeviceGetLimit(&before, cudaLimitStackSize));
  CHECK(before >= 512);
  OK(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
  OK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  CHECK(value == 4096);
  OK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, size_t{4} << 20));
  OK(cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize));
  CHECK(value >= (size_t{4} << 20));
  OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t{16} << 20));
  OK(cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
  CHECK(value >= (size_t{16} << 20));
  cudaError_t refused = cudaDeviceSetLimit(cudaLimit(0x70), 1);
  CHECK(refused == cudaErrorUnsupportedLimit || refused == cudaErrorInvalidValue);
  refused = cudaDeviceGetLimit(&value, cudaLimit(0x70));
  CHECK(refused == cudaErrorUnsupportedLimit || refused == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == refused);

  // A preference: devices of today decide by themselves, but it is kept.
  cudaFuncCache cache = cudaFuncCachePreferNone;
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
  OK(cudaDeviceGetCacheConfig(&cache));
  CHECK(cache == cudaFuncCachePreferL1 || cache == cudaFuncCachePreferNone);
  OK(cudaDeviceSetCacheConfig(cudaFuncCachePreferNone));
  OK(cudaDeviceGetCacheConfig(&cache));
  CHECK(cache == cudaFuncCachePreferNone);
  // Banks are four bytes wide since Maxwell, whatever is asked for.
  cudaSharedMemConfig banks = cudaSharedMemBankSizeDefault;
  OK(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
  OK(cudaDeviceGetSharedMemConfig(&banks));
  CHECK(banks == cudaSharedMemBankSizeFourByte);
  OK(cudaCtxResetPersistingL2Cache());

  int* out;
  int host = 0;
  OK(cudaMalloc(&out, sizeof *out));
  deep<<<1, 1>>>(out, 100);
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 5050);

  // After a reset nothing is left of it: the pointer is nobody's, the limit the first one.
  OK(cudaDeviceReset());
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, out));
  CHECK(about.type == cudaMemoryTypeUnregistered);
  OK(cudaDeviceGetLimit(&value, cudaLimitStackSize));
  CHECK(value == before);
  OK(cudaMalloc(&out, sizeof *out));
  deep<<<1, 1>>>(out, 10);
  OK(cudaMemcpy(&host, out, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 55);
  OK(cudaFree(out));
  return pass();
}
