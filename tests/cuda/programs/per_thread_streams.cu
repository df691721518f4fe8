// Compiled for per-thread default streams: each thread's stream 0 is its own, and a thread that
// waits for its own does not wait for another's.

// Options: --default-stream per-thread
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void fill(int* data, int n, int value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    data[i] = value;
}

int main() {
  constexpr int n = 1000;
  std::atomic<bool> hold{true};
  std::vector<std::thread> threads;
  int* first = nullptr;
  OK(cudaMalloc(&first, n * sizeof(int)));
  // This thread's stream stands still in a host function...
  OK(cudaLaunchHostFunc(
      nullptr,
      [](void* flag) {
        while (*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
      },
      &hold));
  fill<<<1, 64>>>(first, n, 5);
  // ...while others finish on theirs.
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      int* data = nullptr;
      std::vector<int> got(n);
      OK(cudaMalloc(&data, n * sizeof(int)));
      fill<<<1, 64>>>(data, n, t);
      OK(cudaMemcpyAsync(got.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost, nullptr));
      OK(cudaStreamSynchronize(nullptr));
      for (const int each : got) CHECK(each == t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  hold = false;
  std::vector<int> got(n);
  OK(cudaMemcpy(got.data(), first, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (const int each : got) CHECK(each == 5);
  return pass();
}
