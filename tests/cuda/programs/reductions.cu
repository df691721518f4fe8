// Sums by shuffles, by atomics and by cooperative groups agree with the host's; votes and matches
// too.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <numeric>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void by_shuffles(const int* in, int n, int* out) {
  int sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x))
    sum += in[i];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void by_groups(const int* in, int n, int* out) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x))
    sum += in[i];
  sum = cg::reduce(warp, sum, cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(out, sum);
}
__global__ void votes(unsigned* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned odd = __ballot_sync(0xffffffff, lane % 2);
  const unsigned same = __match_any_sync(0xffffffff, lane / 8);
  unsigned inside = 0;
  if (lane < 5) inside = __activemask();
  if (lane == 3) {
    out[0] = odd;
    out[1] = same;
    out[2] = inside;
    out[3] = __popc(odd) + __clz(1);
  }
  out[4 + lane] = static_cast<unsigned>(__all_sync(0xffffffff, lane < 32)) +
                  static_cast<unsigned>(__any_sync(0xffffffff, lane == 31));
}

int main() {
  const int n = 100003;
  std::vector<int> values(n);
  for (int i = 0; i < n; ++i) values[i] = (i * 7919) % 1001 - 500;
  const int want = std::accumulate(values.begin(), values.end(), 0);
  int *in = nullptr, *out = nullptr;
  int got[2] = {};
  unsigned* bits = nullptr;
  unsigned seen[36];
  OK(cudaMalloc(&in, n * sizeof(int)));
  OK(cudaMalloc(&out, sizeof got));
  OK(cudaMalloc(&bits, sizeof seen));
  OK(cudaMemset(out, 0, sizeof got));
  OK(cudaMemcpy(in, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  by_shuffles<<<8, 128>>>(in, n, out);
  by_groups<<<8, 128>>>(in, n, out + 1);
  votes<<<1, 32>>>(bits);
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  OK(cudaMemcpy(seen, bits, sizeof seen, cudaMemcpyDeviceToHost));
  CHECK(got[0] == want && got[1] == want);
  CHECK(seen[0] == 0xaaaaaaaa && seen[1] == 0xff && seen[2] == 0x1f && seen[3] == 16 + 31);
  for (int i = 4; i < 36; ++i) CHECK(seen[i] == 2);
  return pass();
}
