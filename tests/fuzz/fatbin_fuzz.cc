// What parses lies inside the input and unpacks to the size it promises, or says why not.
#include "wire/cuda/fatbin.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

void check_image(const Image& image, std::span<const std::byte> input) {
  RGPU_CHECK(image.stored.empty() ||
             (image.stored.data() >= input.data() &&
              image.stored.data() + image.stored.size() <= input.data() + input.size()));
  RGPU_CHECK(image.unpacked_size_bytes <= kImageBytesMax);
  std::vector<std::byte> storage;
  const auto bytes = unpack(image, storage);
  RGPU_CHECK(bytes || !bytes.error().message().empty());
  if (!bytes) return;
  RGPU_CHECK(image.kind == ImageKind::kPtx ? bytes->size() <= image.unpacked_size_bytes
                                           : bytes->size() == image.unpacked_size_bytes);
  RGPU_CHECK(image.kind != ImageKind::kPtx || bytes->empty() || bytes->back() != std::byte{0});
  const auto facts = facts_of(image);
  RGPU_CHECK(facts || !facts.error().message().empty());
}

void check_choice(const std::vector<Image>& images, uint32_t capability) {
  const auto choice = choose_ptx(images, capability);
  if (choice) {
    const Image& chosen = images.at(choice->index);
    RGPU_CHECK(chosen.kind == ImageKind::kPtx && chosen.arch == choice->arch);
    RGPU_CHECK(chosen.arch.runs_on(capability));
    return;
  }
  RGPU_CHECK(choice.error().message().size() < 1000);
  for (const Image& image : images) {
    RGPU_CHECK(image.kind != ImageKind::kPtx || !image.arch.runs_on(capability));
  }
}

}  // namespace
}  // namespace rgpu::cuda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size_bytes));
  const auto images = rgpu::cuda::read_images(input);
  if (!images) {
    RGPU_CHECK(!images.error().message().empty());
    return 0;
  }
  for (const rgpu::cuda::Image& image : *images) rgpu::cuda::check_image(image, input);
  for (const uint32_t capability : {75U, 89U, 100U}) {
    rgpu::cuda::check_choice(*images, capability);
  }
  return 0;
}
