// Threads that never called cudaSetDevice use CUDA: each with a stream of its own, with the stream
// of the thread, and one that begins before the main thread has called anything.
#include <thread>
#include <vector>

#include "check.h"

__global__ void step(int* x, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

static void work(int number, bool own_stream) {
  const int n = 4000, rounds = 25;
  cudaStream_t stream = cudaStreamPerThread;
  if (own_stream) OK(cudaStreamCreate(&stream));
  int device = -1;
  OK(cudaGetDevice(&device));
  CHECK(device == 0);
  int* x;
  OK(cudaMalloc(&x, n * sizeof(int)));
  OK(cudaMemsetAsync(x, 0, n * sizeof(int), stream));
  for (int round = 0; round < rounds; round++)
    step<<<(n + 255) / 256, 256, 0, stream>>>(x, n, number);
  OK(cudaGetLastError());
  std::vector<int> host(n);
  OK(cudaMemcpyAsync(host.data(), x, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  for (int i = 0; i < n; i++) CHECK(host[i] == number * rounds);
  OK(cudaFree(x));
  if (own_stream) OK(cudaStreamDestroy(stream));
}

static void errors_are_of_a_thread() {
  CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice);
  cudaError_t other = cudaErrorUnknown;
  std::thread([&] { other = cudaGetLastError(); }).join();
  CHECK(other == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

int main() {
  std::thread(work, 3, true).join();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back(work, i + 1, i % 2 == 0);
  work(11, true);
  for (auto& thread : threads) thread.join();

  // A pointer and a stream made by one thread, used by another.
  int *shared, value = 0;
  cudaStream_t stream;
  std::thread([&] {
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&shared, sizeof(int)));
    OK(cudaMemsetAsync(shared, 0, sizeof(int), stream));
    step<<<1, 1, 0, stream>>>(shared, 1, 20);
    OK(cudaStreamSynchronize(stream));
  }).join();
  step<<<1, 1, 0, stream>>>(shared, 1, 22);
  OK(cudaMemcpyAsync(&value, shared, sizeof value, cudaMemcpyDeviceToHost, stream));
  CHECK(value == 42);
  std::thread([&] { OK(cudaFree(shared)); }).join();
  errors_are_of_a_thread();
  return pass();
}
