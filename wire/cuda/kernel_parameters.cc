#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {

Result<ImageFacts> facts_of(const Image& image) {
  std::vector<std::byte> storage;
  Result<std::span<const std::byte>> bytes = unpack(image, storage);
  if (!bytes) return bytes.error();
  if (image.kind == ImageKind::kCubin) return facts_of_cubin(*bytes);
  return facts_of_ptx({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
}

}  // namespace rgpu::cuda
