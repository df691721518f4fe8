// Order within a stream and, by events, between many: chains around a ring of streams, a fork and a
// join, and an event recorded again, of which a wait means the record before it.
#include <vector>

#include "check.h"

const int kStreams = 16, kSize = 2048;

__global__ void step(int* x, int n, int times, int plus, long long ticks) {
  const long long begin = clock64();
  while (clock64() - begin < ticks) {
  }
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * times + plus;
}
__global__ void gather(const int* parts, int n, int* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int total = 0;
  for (int part = 0; part < kStreams; part++) total += parts[part * n + i];
  sum[i] = total;
}

static void step_on(cudaStream_t stream, int* x, int times, int plus, long long ticks = 20000) {
  step<<<kSize / 256, 256, 0, stream>>>(x, kSize, times, plus, ticks);
}

static void expect(const int* device, int want, cudaStream_t stream) {
  std::vector<int> got(kSize, -1);
  OK(cudaMemcpyAsync(got.data(), device, kSize * sizeof(int), cudaMemcpyDeviceToHost, stream));
  for (int i = 0; i < kSize; i++) CHECK(got[i] == want);
}

// One buffer goes around: every stream multiplies and adds, in turn.
static void ring(const std::vector<cudaStream_t>& streams, int* x) {
  std::vector<cudaEvent_t> done(kStreams);
  for (cudaEvent_t& event : done) OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  unsigned want = 0;
  OK(cudaMemsetAsync(x, 0, kSize * sizeof(int), streams[0]));
  for (int turn = 0; turn < 4 * kStreams; turn++) {
    const int at = turn % kStreams;
    if (turn > 0) OK(cudaStreamWaitEvent(streams[at], done[(at + kStreams - 1) % kStreams], 0));
    step_on(streams[at], x, 3, turn);
    OK(cudaEventRecord(done[at], streams[at]));
    want = want * 3 + turn;
  }
  OK(cudaEventSynchronize(done[kStreams - 1]));
  OK(cudaEventQuery(done[kStreams - 1]));
  expect(x, (int)want, streams[0]);
  for (cudaEvent_t event : done) OK(cudaEventDestroy(event));
}

// One stream forks into all, and joins them again; events may be destroyed once they are waited
// for.
static void fork_and_join(const std::vector<cudaStream_t>& streams, int* parts, int* sum) {
  for (int round = 1; round <= 5; round++) {
    cudaEvent_t start;
    OK(cudaEventCreate(&start));
    OK(cudaMemsetAsync(parts, 0, kStreams * kSize * sizeof(int), streams[0]));
    OK(cudaEventRecord(start, streams[0]));
    for (int part = 0; part < kStreams; part++) {
      cudaEvent_t end;
      OK(cudaEventCreateWithFlags(&end, cudaEventDisableTiming));
      OK(cudaStreamWaitEvent(streams[part], start, 0));
      step_on(streams[part], parts + part * kSize, 1, part + round, 5000 * (kStreams - part));
      OK(cudaEventRecord(end, streams[part]));
      OK(cudaStreamWaitEvent(streams[0], end, 0));
      OK(cudaEventDestroy(end));
    }
    gather<<<kSize / 256, 256, 0, streams[0]>>>(parts, kSize, sum);
    OK(cudaEventDestroy(start));
    expect(sum, kStreams * (kStreams - 1) / 2 + kStreams * round, streams[0]);
  }
}

static void recorded_again(const std::vector<cudaStream_t>& streams, int* x) {
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  OK(cudaEventQuery(event));  // One never recorded is no reason to wait.
  OK(cudaStreamWaitEvent(streams[1], event, 0));
  OK(cudaMemsetAsync(x, 0, kSize * sizeof(int), streams[0]));
  step_on(streams[0], x, 1, 5, 100000);
  OK(cudaEventRecord(event, streams[0]));
  OK(cudaStreamWaitEvent(streams[1], event, 0));
  step_on(streams[1], x, 10, 1);
  OK(cudaEventRecord(event, streams[1]));
  OK(cudaStreamWaitEvent(streams[2], event, 0));
  step_on(streams[2], x, 2, 0);
  OK(cudaStreamSynchronize(streams[2]));
  expect(x, 102, streams[3]);
  OK(cudaEventDestroy(event));
}

int main() {
  std::vector<cudaStream_t> streams(kStreams);
  for (cudaStream_t& stream : streams)
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int *parts, *sum;
  OK(cudaMalloc(&parts, kStreams * kSize * sizeof(int)));
  OK(cudaMalloc(&sum, kSize * sizeof(int)));
  ring(streams, sum);
  fork_and_join(streams, parts, sum);
  recorded_again(streams, sum);
  OK(cudaGetLastError());
  // A stream destroyed with work on it finishes that work.
  OK(cudaMemset(sum, 0, kSize * sizeof(int)));
  OK(cudaDeviceSynchronize());
  step_on(streams[5], sum, 1, 9, 100000);
  for (cudaStream_t stream : streams) OK(cudaStreamDestroy(stream));
  OK(cudaDeviceSynchronize());
  expect(sum, 9, nullptr);
  return pass();
}
