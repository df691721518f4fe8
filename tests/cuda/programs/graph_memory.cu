// The memory that a device keeps for graphs is counted, trimmed, and its marks are put back to 0
// and to nothing else. What atomics a device has towards the host is told for each operation.
#include "check.h"

int main() {
  OK(cudaFree(nullptr));
  const cudaGraphMemAttributeType all[] = {
      cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh,
      cudaGraphMemAttrReservedMemCurrent, cudaGraphMemAttrReservedMemHigh};
  OK(cudaDeviceGraphMemTrim(0));
  for (cudaGraphMemAttributeType each : all) {
    unsigned long long value = 1;
    OK(cudaDeviceGetGraphMemAttribute(0, each, &value));
    CHECK(value == 0);
  }
  unsigned long long zero = 0, one = 1;
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrReservedMemHigh, &zero));
  GIVES(cudaErrorInvalidValue,
        cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &one));
  GIVES(cudaErrorInvalidValue,
        cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &zero));
  GIVES(cudaErrorInvalidDevice, cudaDeviceGraphMemTrim(1000));

  const cudaAtomicOperation operations[] = {cudaAtomicOperationIntegerAdd, cudaAtomicOperationCAS};
  unsigned capabilities[2] = {~0u, ~0u};
  OK(cudaDeviceGetHostAtomicCapabilities(capabilities, operations, 2, 0));
  int native = 0;
  OK(cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, 0));
  if (!native) CHECK(!(capabilities[0] & cudaAtomicCapabilityScalar128));
  CHECK(capabilities[0] != ~0u && capabilities[1] != ~0u);
  return pass();
}
