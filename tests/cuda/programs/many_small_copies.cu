// 200,000 copies of 1 KiB up, to places all over a buffer, and one synchronization. Where the
// process counts its round trips (the client library of rgpu does), they are far fewer than copies.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"

struct Counts {
  uint64_t waits, stalls, records, frames, bytes_out, bytes_in;
};

static uint64_t waits_so_far() {
  auto* counts_of = (void (*)(Counts*))dlsym(RTLD_DEFAULT, "rgpu_cuda_stats");
  Counts counts{};
  if (counts_of != nullptr) counts_of(&counts);
  return counts.waits;
}

int main() {
  const int copies = 200000, slots = 1024, slot = 1024;
  char* device;
  OK(cudaMalloc(&device, slots * slot));
  OK(cudaMemset(device, 0, slots * slot));
  OK(cudaDeviceSynchronize());
  std::vector<char> want(slots * slot), got(slots * slot);
  std::vector<char> bytes(slot);
  const uint64_t before = waits_so_far();
  unsigned state = 7;
  for (int i = 0; i < copies; i++) {
    state = state * 1664525u + 1013904223u;
    const size_t place = (size_t)(state >> 22) * slot;
    memset(bytes.data(), (int)(state >> 8), slot);
    bytes[i % slot] = (char)i;
    OK(cudaMemcpy(device + place, bytes.data(), slot, cudaMemcpyHostToDevice));
    memcpy(&want[place], bytes.data(), slot);
  }
  OK(cudaDeviceSynchronize());
  CHECK(waits_so_far() - before <= copies / 1000);
  OK(cudaMemcpy(got.data(), device, got.size(), cudaMemcpyDeviceToHost));
  CHECK(got == want);
  OK(cudaFree(device));
  return pass();
}
