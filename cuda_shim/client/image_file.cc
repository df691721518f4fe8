#include "cuda_shim/client/image_file.h"

#include <cstdio>
#include <memory>

#include "wire/cuda/fatbin.h"

namespace rgpu::cuda {

CUresult read_image_file(const char* path, std::vector<std::byte>& image) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rb"), &std::fclose);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {
    const size_t size = image.size();
    if (size > kImageBytesMax) return CUDA_ERROR_INVALID_IMAGE;
    image.resize(size + kPiece);
    const size_t read = std::fread(image.data() + size, 1, kPiece, file.get());
    image.resize(size + read);
    if (read < kPiece) return CUDA_SUCCESS;
  }
}

}  // namespace rgpu::cuda
