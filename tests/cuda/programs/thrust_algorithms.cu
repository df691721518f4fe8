// Thrust on a million elements, against the host's algorithms.
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "check.h"

struct Mixer {
  __host__ __device__ int operator()(int i) const {
    return (int)((i * 2654435761u) >> 12) - 500000;
  }
};
struct Shift {
  __host__ __device__ int operator()(int i) const { return i >> 12; }
};

int main() {
  const int n = 1000000;
  std::vector<int> want(n);
  for (int i = 0; i < n; i++) want[i] = Mixer()(i);
  thrust::device_vector<int> values(n);
  thrust::transform(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(n),
                    values.begin(), Mixer());
  std::vector<int> got(n);
  thrust::copy(values.begin(), values.end(), got.begin());
  CHECK(got == want);

  CHECK(thrust::reduce(values.begin(), values.end(), 0ll) ==
        std::accumulate(want.begin(), want.end(), 0ll));
  CHECK(thrust::reduce(values.begin(), values.end(), -1000000, thrust::maximum<int>()) ==
        *std::max_element(want.begin(), want.end()));

  thrust::device_vector<int> sums(n);
  thrust::exclusive_scan(values.begin(), values.end(), sums.begin(), 7);
  std::vector<int> want_sums(n);
  for (unsigned i = 0, sum = 7; i < (unsigned)n; sum += want[i++]) want_sums[i] = (int)sum;
  thrust::copy(sums.begin(), sums.end(), got.begin());
  CHECK(got == want_sums);

  thrust::sort(values.begin(), values.end());
  std::sort(want.begin(), want.end());
  thrust::copy(values.begin(), values.end(), got.begin());
  CHECK(got == want);

  // Sorted by keys, downwards, with what belongs to them.
  thrust::device_vector<int> places(thrust::counting_iterator<int>(0),
                                    thrust::counting_iterator<int>(50000));
  thrust::device_vector<float> keys(50000);
  std::vector<float> host_keys(50000);
  for (int i = 0; i < 50000; i++) host_keys[i] = (float)((i * 7919) % 50021) * 0.5f;
  thrust::copy(host_keys.begin(), host_keys.end(), keys.begin());
  thrust::sort_by_key(keys.begin(), keys.end(), places.begin(), thrust::greater<float>());
  std::vector<int> host_places(50000);
  thrust::copy(places.begin(), places.end(), host_places.begin());
  for (int i = 1; i < 50000; i++) CHECK(host_keys[host_places[i - 1]] > host_keys[host_places[i]]);

  // A histogram of sorted values: where each one's last lies.
  thrust::transform(values.begin(), values.end(), values.begin(), Shift());
  for (int& value : want) value = value >> 12;
  const int lowest = want.front(), bins = want.back() - lowest + 1;
  thrust::device_vector<int> ends(bins);
  thrust::upper_bound(values.begin(), values.end(), thrust::counting_iterator<int>(lowest),
                      thrust::counting_iterator<int>(lowest + bins), ends.begin());
  for (int bin = 0; bin < bins; bin += 37)
    CHECK(ends[bin] == std::upper_bound(want.begin(), want.end(), lowest + bin) - want.begin());

  const auto end = thrust::unique(values.begin(), values.end());
  want.erase(std::unique(want.begin(), want.end()), want.end());
  got.resize(end - values.begin());
  thrust::copy(values.begin(), end, got.begin());
  CHECK(got == want);
  return pass();
}
