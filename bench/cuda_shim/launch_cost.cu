// What does issuing a launch cost a program that does not wait?
//
//   nvcc -O2 -gencode arch=compute_75,code=compute_75 -o launch_cost bench/cuda_shim/launch_cost.cu
//   rgpu-run --local --cuda null ./launch_cost            # the server takes everything, does nothing
//   CUDA_LAUNCH_BLOCKING=1 rgpu-run --local --cuda null ./launch_cost 20000     # every launch waits
//
// Prints the mean and the median of the time from one launch to the next, in microseconds: four
// parameters, stalls of a full ring included. The second command is the baseline: what a launch costs
// where every call is a round trip.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void nothing(int*, float, int, double*) {}

int main(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000000;
  int* memory = nullptr;
  if (cudaMalloc(&memory, 4) != cudaSuccess) return 1;
  for (int i = 0; i < 1000; ++i) nothing<<<1, 1>>>(memory, 2.f, i, nullptr);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::vector<float> times(count);
  const Clock::time_point begin = Clock::now();
  Clock::time_point last = begin;
  for (int i = 0; i < count; ++i) {
    nothing<<<1, 1>>>(memory, 2.f, i, nullptr);
    const Clock::time_point now = Clock::now();
    times[i] = std::chrono::duration<float, std::micro>(now - last).count();
    last = now;
  }
  const double all = std::chrono::duration<double, std::micro>(last - begin).count();
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  std::printf("%d launches: mean %.3f us, median %.3f us\n", count, all / count, times[count / 2]);
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
