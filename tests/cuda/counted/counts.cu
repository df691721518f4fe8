// Does what its argument says, and prints what that cost: waits, stalls, records.
//   vector-add | launches | copies | sync-copies | launch-and-read | events | queries | symbols |
//   async
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "../programs/check.h"

struct Stats {
  uint64_t waits, stalls, records, frames, bytes_out, bytes_in;
};
static Stats stats() {
  static auto* const ask = reinterpret_cast<void (*)(Stats*)>(
      dlsym(dlopen("librgpu_cuda.so", RTLD_NOW | RTLD_NOLOAD), "rgpu_cuda_stats"));
  Stats now{};
  ask(&now);
  return now;
}
static Stats before;
static void begin() { before = stats(); }
static void end() {
  const Stats now = stats();
  printf("waits %llu stalls %llu records %llu\n",
         static_cast<unsigned long long>(now.waits - before.waits),
         static_cast<unsigned long long>(now.stalls - before.stalls),
         static_cast<unsigned long long>(now.records - before.records));
}

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void count(int* x) { *x += 1; }
__device__ int variable[4];

static void vector_add() {
  const int n = 1000;
  std::vector<float> a(n, 1.5f), b(n, 2.25f), c(n);
  float *x, *y, *z;
  OK(cudaMalloc(&x, n * sizeof(float)));
  OK(cudaMalloc(&y, n * sizeof(float)));
  OK(cudaMalloc(&z, n * sizeof(float)));
  OK(cudaMemcpy(x, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  OK(cudaMemcpy(y, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  add<<<(n + 255) / 256, 256>>>(x, y, z, n);
  OK(cudaGetLastError());
  OK(cudaMemcpy(c.data(), z, n * sizeof(float), cudaMemcpyDeviceToHost));
  for (const float each : c) CHECK(each == 3.75f);
  OK(cudaFree(x));
  OK(cudaFree(y));
  OK(cudaFree(z));
}

static void launches() {
  int* x;
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  begin();
  for (int i = 0; i < 1000; ++i) count<<<1, 1>>>(x);
  OK(cudaDeviceSynchronize());
  end();
  int value = 0;
  OK(cudaMemcpy(&value, x, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == 1000);
}

static void copies() {
  constexpr size_t kSize = size_t{4} << 20;
  std::mt19937 random(1);
  std::vector<unsigned char> expected(kSize, 0);
  unsigned char* device;
  OK(cudaMalloc(&device, kSize));
  OK(cudaMemset(device, 0, kSize));
  begin();
  for (int i = 0; i < 10000; ++i) {
    unsigned char piece[1024];
    const size_t size = 1 + random() % sizeof piece;
    const size_t at = random() % (kSize - size);
    memset(piece, static_cast<int>(random() % 256), size);
    piece[0] = static_cast<unsigned char>(i);
    OK(cudaMemcpyAsync(device + at, piece, size, cudaMemcpyHostToDevice));
    memcpy(expected.data() + at, piece, size);
    memset(piece, 0xee, sizeof piece);
  }
  OK(cudaDeviceSynchronize());
  end();
  std::vector<unsigned char> got(kSize);
  OK(cudaMemcpy(got.data(), device, kSize, cudaMemcpyDeviceToHost));
  CHECK(got == expected);
}

static void sync_copies() {
  int* x;
  OK(cudaMalloc(&x, 1000 * sizeof(int)));
  begin();
  for (int i = 0; i < 1000; ++i) OK(cudaMemcpy(x + i, &i, sizeof i, cudaMemcpyHostToDevice));
  std::vector<int> back(1000);
  OK(cudaMemcpy(back.data(), x, back.size() * sizeof(int), cudaMemcpyDeviceToHost));
  end();
  for (int i = 0; i < 1000; ++i) CHECK(back[i] == i);
}

static void events() {
  cudaStream_t streams[4];
  cudaEvent_t made[4];
  OK(cudaFree(nullptr));
  int* x;
  begin();
  OK(cudaMalloc(&x, 4 * sizeof(int)));
  OK(cudaMemset(x, 0, 4 * sizeof(int)));
  for (int i = 0; i < 4; ++i) {
    OK(cudaStreamCreate(&streams[i]));
    OK(cudaEventCreate(&made[i]));
    count<<<1, 1, 0, streams[i]>>>(x + i);
    OK(cudaEventRecord(made[i], streams[i]));
    if (i > 0) OK(cudaStreamWaitEvent(streams[i], made[i - 1], 0));
  }
  OK(cudaEventSynchronize(made[3]));
  end();
  for (int i = 0; i < 4; ++i) {
    OK(cudaStreamDestroy(streams[i]));
    OK(cudaEventDestroy(made[i]));
  }
}

static void queries() {
  cudaStream_t stream;
  int* x;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&x, sizeof(int)));
  count<<<1, 1, 0, stream>>>(x);
  begin();
  long polls = 0;
  cudaError_t code;
  while ((code = cudaStreamQuery(stream)) == cudaErrorNotReady) ++polls;
  OK(code);
  end();  // However many polls: one record, and no wait.
}

static void symbols() {
  const int values[4] = {1, 2, 3, 4};
  int back[4] = {};
  OK(cudaMemcpyToSymbol(variable, values, sizeof values));
  begin();
  for (int i = 0; i < 100; ++i) OK(cudaMemcpyToSymbol(variable, values, sizeof values));
  OK(cudaMemcpyFromSymbol(back, variable, sizeof back));
  end();
  CHECK(memcmp(values, back, sizeof back) == 0);
}

static void async() {
  int *x, *pinned;
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&x, sizeof(int)));
  OK(cudaMallocHost(&pinned, 100 * sizeof(int)));
  OK(cudaMemset(x, 0, sizeof(int)));
  begin();
  for (int i = 0; i < 100; ++i) {
    count<<<1, 1, 0, stream>>>(x);
    OK(cudaMemcpyAsync(pinned + i, x, sizeof(int), cudaMemcpyDeviceToHost, stream));
  }
  OK(cudaStreamSynchronize(stream));
  end();
  for (int i = 0; i < 100; ++i) CHECK(pinned[i] == i + 1);
  OK(cudaFreeHost(pinned));
}

int main(int, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } cases[] = {{"vector-add", vector_add},   {"launches", launches}, {"copies", copies},
               {"sync-copies", sync_copies}, {"events", events},     {"queries", queries},
               {"symbols", symbols},         {"async", async}};
  for (const auto& each : cases) {
    if (strcmp(each.name, argv[1]) == 0) {
      each.run();
      return pass();
    }
  }
  return 2;
}
