// Arrays, textures and surfaces are refused by name, and the next good call works.
#include <cstring>

#include "check.h"

int main() {
  float *x, host[4] = {1, 2, 3, 4}, back[4];
  OK(cudaMalloc(&x, sizeof host));
  const auto works = [&] {
    memset(back, 0, sizeof back);
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(memcmp(host, back, sizeof host) == 0);
  };
  // A description is the host's alone.
  cudaChannelFormatDesc format = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
  CHECK(format.x == 32 && format.w == 0 && format.f == cudaChannelFormatKindFloat);

  cudaArray_t array = nullptr;
  GIVES(cudaErrorNotSupported, cudaMallocArray(&array, &format, 16, 16, 0));
  works();
  GIVES(cudaErrorNotSupported, cudaMalloc3DArray(&array, &format, make_cudaExtent(4, 4, 4), 0));
  cudaMipmappedArray_t levels = nullptr;
  GIVES(cudaErrorNotSupported,
        cudaMallocMipmappedArray(&levels, &format, make_cudaExtent(4, 4, 0), 2, 0));
  works();

  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = x;
  resource.res.linear.desc = format;
  resource.res.linear.sizeInBytes = sizeof host;
  cudaTextureDesc how = {};
  cudaTextureObject_t texture = 0;
  GIVES(cudaErrorNotSupported, cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  works();
  cudaSurfaceObject_t surface = 0;
  GIVES(cudaErrorNotSupported, cudaCreateSurfaceObject(&surface, &resource));
  works();
  OK(cudaFree(x));
  return pass();
}
