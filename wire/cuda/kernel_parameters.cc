#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

bool is_readable(const Image& image) {
  return image.kind == ImageKind::kPtx || image.kind == ImageKind::kCubin;
}

bool runs_natively(const Image& image, uint32_t device_capability) {
  return image.kind == ImageKind::kCubin && image.arch.runs_on(device_capability) &&
         image.arch.capability / 10 == device_capability / 10;
}

}  // namespace

Result<ImageFacts> facts_of(const Image& image) {
  std::vector<std::byte> storage;
  Result<std::span<const std::byte>> bytes = unpack(image, storage);
  if (!bytes) return bytes.error();
  if (image.kind == ImageKind::kCubin) return facts_of_cubin(*bytes);
  return facts_of_ptx({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
}

Result<ImageFacts> facts_for(std::span<const Image> images, uint32_t device_capability) {
  Result<PtxChoice> ptx = choose_ptx(images, device_capability);
  if (ptx) return facts_of(images[ptx->index]);
  const Image* best = nullptr;
  for (const Image& image : images) {
    if (!is_readable(image)) continue;
    if (best == nullptr ||
        (runs_natively(image, device_capability) && !runs_natively(*best, device_capability))) {
      best = &image;
    }
  }
  if (best == nullptr) return ptx.error();
  return facts_of(*best);
}

}  // namespace rgpu::cuda
