// Reading an image from a file.
//
// Threading: any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_shim/generated/cuda_api.h"

namespace rgpu::cuda {

// CUDA_ERROR_FILE_NOT_FOUND; CUDA_ERROR_INVALID_IMAGE for one over the limit of images.
[[nodiscard]] CUresult read_image_file(const char* path, std::vector<std::byte>& image);

}  // namespace rgpu::cuda
