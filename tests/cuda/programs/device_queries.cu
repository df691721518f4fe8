// What is told about a device agrees, whichever way it is asked: properties, attributes, the PCI
// address; a device that there is not is refused and the next call works.
#include <cstring>

#include "check.h"

static int attribute(cudaDeviceAttr which) {
  int value = -1;
  OK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

int main() {
  int count = 0, device = -1;
  OK(cudaGetDeviceCount(&count));
  CHECK(count >= 1);
  OK(cudaGetDevice(&device));
  CHECK(device == 0);
  OK(cudaSetDevice(count - 1));
  OK(cudaGetDevice(&device));
  CHECK(device == count - 1);
  GIVES(cudaErrorInvalidDevice, cudaSetDevice(count));
  GIVES(cudaErrorInvalidDevice, cudaSetDevice(-1));
  OK(cudaGetDevice(&device));
  CHECK(device == count - 1);
  OK(cudaSetDevice(0));

  cudaDeviceProp p;
  OK(cudaGetDeviceProperties(&p, 0));
  CHECK(strlen(p.name) > 0 && strlen(p.name) < sizeof p.name);
  CHECK(p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.major >= 7);
  CHECK(p.totalGlobalMem >= (size_t{64} << 20) && p.totalConstMem == 65536);
  CHECK(p.warpSize == attribute(cudaDevAttrWarpSize));
  CHECK(p.major == attribute(cudaDevAttrComputeCapabilityMajor));
  CHECK(p.minor == attribute(cudaDevAttrComputeCapabilityMinor));
  CHECK(p.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount));
  CHECK(p.maxThreadsPerMultiProcessor == attribute(cudaDevAttrMaxThreadsPerMultiProcessor));
  CHECK(p.maxGridSize[0] == attribute(cudaDevAttrMaxGridDimX) && p.maxGridSize[0] == 0x7fffffff);
  CHECK(p.maxThreadsDim[2] == attribute(cudaDevAttrMaxBlockDimZ) && p.maxThreadsDim[2] == 64);
  CHECK(p.sharedMemPerBlock == size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlock)));
  CHECK(p.sharedMemPerBlockOptin == size_t(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)));
  CHECK(p.l2CacheSize == attribute(cudaDevAttrL2CacheSize));
  CHECK(p.canMapHostMemory == attribute(cudaDevAttrCanMapHostMemory));
  CHECK(p.unifiedAddressing == 1 && attribute(cudaDevAttrUnifiedAddressing) == 1);
  GIVES(cudaErrorInvalidDevice, cudaGetDeviceProperties(&p, count));
  int value = 0;
  GIVES(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, count));
  GIVES(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, cudaDeviceAttr(100000), 0));

  char address[32] = "";
  OK(cudaDeviceGetPCIBusId(address, sizeof address, 0));
  unsigned domain = 0, bus = 0, slot = 0, function = 9;
  CHECK(sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
  CHECK(int(domain) == p.pciDomainID && int(bus) == p.pciBusID && int(slot) == p.pciDeviceID);
  int found = -1;
  OK(cudaDeviceGetByPCIBusId(&found, address));
  CHECK(found == 0);
  GIVES(cudaErrorInvalidValue, cudaDeviceGetByPCIBusId(&found, "no such place"));

  // The device that is like the one asked for.
  cudaDeviceProp wanted;
  memset(&wanted, 0, sizeof wanted);
  wanted.major = p.major;
  wanted.minor = p.minor;
  found = -1;
  OK(cudaChooseDevice(&found, &wanted));
  CHECK(found >= 0 && found < count);
  OK(cudaGetDeviceProperties(&wanted, found));
  CHECK(wanted.major >= p.major);

  int least = 7, greatest = 7;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && greatest <= least);
  CHECK((greatest < 0) == (p.streamPrioritiesSupported != 0));
  return pass();
}
