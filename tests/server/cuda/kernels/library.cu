// Kernels on top of the libraries that come with nvcc. library.ptx is made of this:
//   nvcc -ptx -arch=compute_75 -o library.ptx library.cu
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

namespace cg = cooperative_groups;

extern "C" __global__ void grid_sync(int* a, int* b, int n) {
  const auto grid = cg::this_grid();
  const int i = grid.thread_rank();
  if (i < n) a[i] = 2 * i;
  grid.sync();
  if (i < n) b[i] = a[(i + n / 2) % n];
  grid.sync();
  if (i < n) a[i] = b[n - 1 - i];
}

extern "C" __global__ void tiles(const int* in, int* sums, int* scans, int* sizes) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = block.thread_rank();
  const int value = in[i];
  sums[i] = cg::reduce(tile, value, cg::plus<int>());
  scans[i] = cg::inclusive_scan(tile, value);
  sizes[i] = 0;
  if (value % 3 == 0) {
    const auto together = cg::coalesced_threads();
    sizes[i] = together.size() * 100 + cg::reduce(together, 1, cg::plus<int>());
  }
}

extern "C" __global__ void block_primitives(const int* in, int* sum, int* scan, unsigned* sorted) {
  using Reduce = cub::BlockReduce<int, 128>;
  using Scan = cub::BlockScan<int, 128>;
  using Sort = cub::BlockRadixSort<unsigned, 128, 4>;
  __shared__ union {
    typename Reduce::TempStorage reduce;
    typename Scan::TempStorage scan;
    typename Sort::TempStorage sort;
  } storage;
  const int value = in[threadIdx.x];
  const int total = Reduce(storage.reduce).Sum(value);
  if (threadIdx.x == 0) *sum = total;
  __syncthreads();
  int before;
  Scan(storage.scan).ExclusiveSum(value, before);
  scan[threadIdx.x] = before;
  __syncthreads();
  unsigned keys[4];
  for (int k = 0; k < 4; ++k) keys[k] = (threadIdx.x * 4 + k) * 2654435761u;
  Sort(storage.sort).Sort(keys);
  for (int k = 0; k < 4; ++k) sorted[threadIdx.x * 4 + k] = keys[k];
}

extern "C" __global__ void halves(const float* in, float* half, float* bfloat) {
  const int i = threadIdx.x;
  const __half h = __float2half(in[i]);
  half[i] = __half2float(__hfma(h, h, __float2half(0.5f)));
  const __nv_bfloat16 b = __float2bfloat16(in[i]);
  bfloat[i] = __bfloat162float(__hmul(b, __hadd(b, __float2bfloat16(1.0f))));
}

extern "C" __global__ void mathematics(const double* in, double* out, float* single) {
  const int i = threadIdx.x;
  const double x = in[i];
  out[i] = sin(x) + exp(x) * pow(x, 1.7) / tgamma(x + 1) + cbrt(x) + rsqrt(x) + log1p(x) + erf(x);
  const float f = x;
  single[i] = sinf(f * 1e6f) + powf(f, 2.3f) + tanhf(f) + fmodf(f, 0.7f) + __frcp_rn(f) + expf(-f);
}
