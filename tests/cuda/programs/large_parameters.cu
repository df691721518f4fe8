// Parameters beyond 4 KiB, aligned to 64, and those that change right after the launch.
#include "check.h"

struct alignas(64) Aligned {
  int values[4];
};
struct Large {
  int values[4000];
};

__global__ void sum(long long* out, char before, Large large, Aligned aligned, short after) {
  long long total = before + after;
  for (int i = 0; i < 4000; ++i) total += static_cast<long long>(large.values[i]) * i;
  for (const int value : aligned.values) total += value;
  *out = total;
}

int main() {
  long long* out = nullptr;
  long long got[8];
  OK(cudaMalloc(&out, sizeof got));
  static Large large;
  for (int round = 0; round < 8; ++round) {
    for (int i = 0; i < 4000; ++i) large.values[i] = i % 11 + round;
    sum<<<1, 1>>>(out + round, 'A', large, Aligned{{1, 2, 3, round}}, -5);
  }
  OK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int round = 0; round < 8; ++round) {
    long long want = 'A' - 5 + 6 + round;
    for (int i = 0; i < 4000; ++i) want += static_cast<long long>(i % 11 + round) * i;
    CHECK(got[round] == want);
  }
  return pass();
}
