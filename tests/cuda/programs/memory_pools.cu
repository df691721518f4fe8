// Memory in the order of streams, from the device's pool or one's own: used when the stream is
// there, counted, kept or given back as the pool is told to.
#include "check.h"

__global__ void fill(int* x, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value + i;
}

constexpr int kCount = 5000;
constexpr size_t kSize = kCount * sizeof(int);
static int host[kCount];

static void use(int* x, int value, cudaStream_t s) {
  fill<<<(kCount + 127) / 128, 128, 0, s>>>(x, kCount, value);
  OK(cudaMemcpyAsync(host, x, kSize, cudaMemcpyDeviceToHost, s));
  OK(cudaStreamSynchronize(s));
  for (int i = 0; i < kCount; ++i) CHECK(host[i] == value + i);
}

static unsigned long long amount(cudaMemPool_t pool, cudaMemPoolAttr which) {
  unsigned long long value = ~0ull;
  OK(cudaMemPoolGetAttribute(pool, which, &value));
  return value;
}

static void which_pool(cudaMemPool_t own) {
  cudaMemPool_t first, same, now;
  OK(cudaDeviceGetDefaultMemPool(&first, 0));
  cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
  OK(cudaMemGetDefaultMemPool(&same, &here, cudaMemAllocationTypePinned));
  CHECK(same == first);
  OK(cudaDeviceGetMemPool(&now, 0));
  CHECK(now == first);
  OK(cudaDeviceSetMemPool(0, own));
  OK(cudaDeviceGetMemPool(&now, 0));
  CHECK(now == own);
  OK(cudaMemGetMemPool(&now, &here, cudaMemAllocationTypePinned));
  CHECK(now == own);
  // What is allocated without saying where comes from there.
  int* x;
  OK(cudaMallocAsync(&x, kSize, 0));
  CHECK(amount(own, cudaMemPoolAttrUsedMemCurrent) >= kSize);
  OK(cudaFreeAsync(x, 0));
  OK(cudaMemSetMemPool(&here, cudaMemAllocationTypePinned, first));
  OK(cudaDeviceGetMemPool(&now, 0));
  CHECK(now == first);
  OK(cudaStreamSynchronize(0));
}

int main() {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  int *x, *y;
  OK(cudaMallocAsync(&x, kSize, s));
  use(x, 100, s);
  OK(cudaFreeAsync(x, s));
  OK(cudaMallocAsync(&y, kSize, s));
  use(y, 200, s);
  OK(cudaFreeAsync(y, s));
  OK(cudaStreamSynchronize(s));
  GIVES(cudaErrorInvalidValue, cudaMallocAsync(nullptr, kSize, s));

  cudaMemPool_t pool;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  OK(cudaMemPoolCreate(&pool, &props));
  unsigned long long keep = ~0ull;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  CHECK(amount(pool, cudaMemPoolAttrReleaseThreshold) == ~0ull);
  CHECK(amount(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
  OK(cudaMallocFromPoolAsync(&x, kSize, pool, s));
  OK(cudaMallocFromPoolAsync(&y, kSize, pool, s));
  CHECK(x != y);
  use(x, 300, s);
  use(y, 400, s);
  CHECK(amount(pool, cudaMemPoolAttrUsedMemCurrent) >= 2 * kSize);
  CHECK(amount(pool, cudaMemPoolAttrReservedMemCurrent) >= 2 * kSize);
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, x));
  CHECK(about.type == cudaMemoryTypeDevice && about.device == 0);
  OK(cudaFreeAsync(x, s));
  OK(cudaFree(y));  // The other way to free it, which waits.
  OK(cudaStreamSynchronize(s));
  CHECK(amount(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
  CHECK(amount(pool, cudaMemPoolAttrUsedMemHigh) >= 2 * kSize);
  unsigned long long zero = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  CHECK(amount(pool, cudaMemPoolAttrUsedMemHigh) == 0);
  // It kept what was freed; a trim gives that back.
  CHECK(amount(pool, cudaMemPoolAttrReservedMemCurrent) > 0);
  OK(cudaMemPoolTrimTo(pool, 0));
  CHECK(amount(pool, cudaMemPoolAttrReservedMemCurrent) == 0);

  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
  OK(cudaMemPoolGetAccess(&flags, pool, &props.location));
  CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  cudaMemAccessDesc access = {props.location, cudaMemAccessFlagsProtReadWrite};
  OK(cudaMemPoolSetAccess(pool, &access, 1));
  access.flags = cudaMemAccessFlagsProtNone;  // A device cannot lose its own.
  CHECK(cudaMemPoolSetAccess(pool, &access, 1) != cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaMemPoolGetAccess(&flags, pool, &props.location));
  CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  which_pool(pool);
  OK(cudaMemPoolDestroy(pool));
  OK(cudaStreamDestroy(s));
  return pass();
}
