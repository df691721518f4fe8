// A stream has the flags, priority, device and attributes that it was given, an id that no other
// has, and is of no use when it was destroyed.
#include "check.h"

__global__ void add(int* x, int value) { atomicAdd(x, value); }

int main() {
  cudaStream_t plain, free_running, urgent;
  int least = 0, greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  OK(cudaStreamCreate(&plain));
  OK(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
  cudaStream_t none = nullptr;
  GIVES(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&none, 0x40));
  GIVES(cudaErrorInvalidValue, cudaStreamCreate(nullptr));

  unsigned flags = 9;
  OK(cudaStreamGetFlags(plain, &flags));
  CHECK(flags == cudaStreamDefault);
  OK(cudaStreamGetFlags(free_running, &flags));
  CHECK(flags == cudaStreamNonBlocking);
  OK(cudaStreamGetFlags(nullptr, &flags));
  CHECK(flags == cudaStreamDefault);
  int priority = 9;
  OK(cudaStreamGetPriority(plain, &priority));
  CHECK(priority == 0);
  OK(cudaStreamGetPriority(urgent, &priority));
  CHECK(priority == greatest);
  // What is out of range is brought into it.
  cudaStream_t beyond;
  OK(cudaStreamCreateWithPriority(&beyond, cudaStreamDefault, greatest - 100));
  OK(cudaStreamGetPriority(beyond, &priority));
  CHECK(priority == greatest);
  unsigned long long ids[4] = {};
  OK(cudaStreamGetId(plain, &ids[0]));
  OK(cudaStreamGetId(free_running, &ids[1]));
  OK(cudaStreamGetId(urgent, &ids[2]));
  OK(cudaStreamGetId(nullptr, &ids[3]));
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < i; ++j) CHECK(ids[i] != ids[j]);
  int device = -1;
  OK(cudaStreamGetDevice(urgent, &device));
  CHECK(device == 0);

  cudaStreamAttrValue value = {};
  value.syncPolicy = cudaSyncPolicyYield;
  OK(cudaStreamSetAttribute(plain, cudaStreamAttributeSynchronizationPolicy, &value));
  value = {};
  OK(cudaStreamGetAttribute(plain, cudaStreamAttributeSynchronizationPolicy, &value));
  CHECK(value.syncPolicy == cudaSyncPolicyYield);
  OK(cudaStreamGetAttribute(urgent, cudaStreamAttributeSynchronizationPolicy, &value));
  CHECK(value.syncPolicy != cudaSyncPolicyYield);
  OK(cudaStreamCopyAttributes(urgent, plain));
  OK(cudaStreamGetAttribute(urgent, cudaStreamAttributeSynchronizationPolicy, &value));
  CHECK(value.syncPolicy == cudaSyncPolicyYield);

  // All of them work.
  int* x;
  int host = 0;
  OK(cudaMalloc(&x, sizeof *x));
  OK(cudaMemset(x, 0, sizeof *x));
  OK(cudaDeviceSynchronize());
  cudaStream_t all[] = {plain, free_running, urgent, beyond, nullptr, cudaStreamPerThread};
  for (cudaStream_t each : all) add<<<1, 32, 0, each>>>(x, 1);
  for (cudaStream_t each : all) OK(cudaStreamSynchronize(each));
  for (cudaStream_t each : all) OK(cudaStreamQuery(each));
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 6 * 32);

  // Work that was issued goes on when its stream is destroyed.
  for (int i = 0; i < 20; ++i) add<<<1, 32, 0, free_running>>>(x, 1);
  OK(cudaStreamDestroy(free_running));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host == 26 * 32);
  OK(cudaStreamDestroy(plain));
  OK(cudaStreamDestroy(urgent));
  OK(cudaStreamDestroy(beyond));
  OK(cudaFree(x));
  return pass();
}
