// Memory and events of other processes and of graphics are refused by name, and the next good call
// works.
#include "check.h"

int main() {
  int* x;
  OK(cudaMalloc(&x, 4096));
  const auto works = [&] {
    int host = 0;
    OK(cudaMemset(x, 1, sizeof host));
    OK(cudaMemcpy(&host, x, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(host == 0x01010101);
  };
  cudaIpcMemHandle_t memory = {};
  void* opened = nullptr;
  GIVES(cudaErrorNotSupported, cudaIpcGetMemHandle(&memory, x));
  works();
  GIVES(cudaErrorNotSupported,
        cudaIpcOpenMemHandle(&opened, memory, cudaIpcMemLazyEnablePeerAccess));
  GIVES(cudaErrorNotSupported, cudaIpcCloseMemHandle(x));
  cudaEvent_t event;
  cudaIpcEventHandle_t handle = {};
  GIVES(cudaErrorNotSupported,
        cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  GIVES(cudaErrorNotSupported, cudaIpcGetEventHandle(&handle, event));
  OK(cudaEventRecord(event, 0));
  OK(cudaEventSynchronize(event));
  GIVES(cudaErrorNotSupported, cudaIpcOpenEventHandle(&event, handle));
  works();

  cudaExternalMemory_t outside = nullptr;
  cudaExternalMemoryHandleDesc described = {};
  described.type = cudaExternalMemoryHandleTypeOpaqueFd;
  described.size = 4096;
  GIVES(cudaErrorNotSupported, cudaImportExternalMemory(&outside, &described));
  works();
  cudaExternalSemaphore_t semaphore = nullptr;
  cudaExternalSemaphoreHandleDesc of_semaphore = {};
  of_semaphore.type = cudaExternalSemaphoreHandleTypeOpaqueFd;
  GIVES(cudaErrorNotSupported, cudaImportExternalSemaphore(&semaphore, &of_semaphore));
  works();
  cudaGraphicsResource_t resource = nullptr;
  GIVES(cudaErrorNotSupported, cudaGraphicsMapResources(1, &resource, 0));
  GIVES(cudaErrorNotSupported, cudaGraphicsUnregisterResource(resource));
  works();

  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  props.location = {cudaMemLocationTypeDevice, 0};
  GIVES(cudaErrorNotSupported, cudaMemPoolCreate(&pool, &props));
  works();
  OK(cudaFree(x));
  return pass();
}
