// CUB's device-wide algorithms on a million elements, against the host's.
#include <algorithm>
#include <cub/cub.cuh>
#include <numeric>
#include <vector>

#include "check.h"

const int n = 1000000;

static unsigned char* scratch = nullptr;
static size_t scratch_size = 0;

// Each algorithm is called twice: it says how much scratch memory it wants, and then runs.
template <typename Run>
static void with_scratch(Run run) {
  size_t size = 0;
  OK(run((void*)nullptr, size));
  if (size > scratch_size) {
    OK(cudaFree(scratch));
    OK(cudaMalloc(&scratch, size));
    scratch_size = size;
  }
  OK(run((void*)scratch, size));
}

template <typename T>
static std::vector<T> fetched(const T* device, size_t count) {
  std::vector<T> host(count);
  OK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

int main() {
  std::vector<unsigned> values(n);
  unsigned state = 12345;
  for (unsigned& value : values) value = (state = state * 1664525u + 1013904223u) >> 8;
  unsigned *in, *out, *few, *few_out;
  int *histogram, *selected;
  OK(cudaMalloc(&in, n * sizeof *in));
  OK(cudaMalloc(&out, n * sizeof *out));
  OK(cudaMalloc(&few, n * sizeof *few));
  OK(cudaMalloc(&few_out, n * sizeof *few_out));
  OK(cudaMalloc(&histogram, 64 * sizeof *histogram));
  OK(cudaMalloc(&selected, sizeof *selected));
  OK(cudaMemcpy(in, values.data(), n * sizeof *in, cudaMemcpyHostToDevice));

  with_scratch(
      [&](void* room, size_t& size) { return cub::DeviceReduce::Sum(room, size, in, out, n); });
  CHECK(fetched(out, 1)[0] == std::accumulate(values.begin(), values.end(), 0u));
  with_scratch(
      [&](void* room, size_t& size) { return cub::DeviceReduce::Max(room, size, in, out, n); });
  CHECK(fetched(out, 1)[0] == *std::max_element(values.begin(), values.end()));

  with_scratch([&](void* room, size_t& size) {
    return cub::DeviceScan::InclusiveSum(room, size, in, out, n);
  });
  std::vector<unsigned> sums(n);
  std::partial_sum(values.begin(), values.end(), sums.begin());
  CHECK(fetched(out, n) == sums);
  with_scratch([&](void* room, size_t& size) {
    return cub::DeviceHistogram::HistogramEven(room, size, in, histogram, 65, 0u, 1u << 24, n);
  });
  std::vector<int> counts(64);
  for (unsigned value : values) counts[value >> 18]++;
  CHECK(fetched(histogram, 64) == counts);

  with_scratch([&](void* room, size_t& size) {
    return cub::DeviceRadixSort::SortKeys(room, size, in, out, n, 0, 24);
  });
  std::vector<unsigned> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  CHECK(fetched(out, n) == sorted);

  // Runs of equal values become one.
  for (int i = 0; i < n; i++) values[i] = sorted[i] >> 12;
  OK(cudaMemcpy(few, values.data(), n * sizeof *few, cudaMemcpyHostToDevice));
  with_scratch([&](void* room, size_t& size) {
    return cub::DeviceSelect::Unique(room, size, few, few_out, selected, n);
  });
  values.erase(std::unique(values.begin(), values.end()), values.end());
  CHECK(fetched(selected, 1)[0] == (int)values.size());
  CHECK(fetched(few_out, values.size()) == values);
  for (void* memory : {(void*)in, (void*)out, (void*)few, (void*)few_out, (void*)histogram,
                       (void*)selected, (void*)scratch})
    OK(cudaFree(memory));
  return pass();
}
