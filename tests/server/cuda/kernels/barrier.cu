// Barriers that are words of memory. barrier.ptx is made of this:
//   nvcc -ptx -arch=compute_80 -o barrier.ptx barrier.cu
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cuda/barrier>
#include <cuda/pipeline>

#pragma nv_diag_suppress static_var_with_dynamic_init

extern "C" __global__ void phases(const int* in, int* out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  __shared__ int tile[128];
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  for (int k = 0; k < 3; ++k) {
    cuda::memcpy_async(&tile[threadIdx.x], &in[threadIdx.x + k * 128], cuda::aligned_size_t<4>(4), barrier);
    barrier.arrive_and_wait();
    out[threadIdx.x + k * 128] = tile[127 - threadIdx.x];
    barrier.arrive_and_wait();
  }
}

extern "C" __global__ void pipelined(const int* in, int* out) {
  __shared__ int tiles[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  const auto block = cooperative_groups::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  for (int k = 0; k < 3; ++k) {
    pipeline.producer_acquire();
    cuda::memcpy_async(block, tiles[k & 1], in + 128 * k, cuda::aligned_size_t<16>(512), pipeline);
    pipeline.producer_commit();
    pipeline.consumer_wait();
    out[k * 128 + threadIdx.x] = tiles[k & 1][127 - threadIdx.x];
    pipeline.consumer_release();
  }
}
