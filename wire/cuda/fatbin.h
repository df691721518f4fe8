// fatbin: the images (PTX texts and cubins) inside what a program hands to cuModuleLoadData or
// registers before main.
//
// Threading: plain functions over the caller's bytes; any thread.
// Lifetime:  what is returned refers to the bytes given.
// Errors:    kInvalidArgument names what is wrong with the bytes; none of them are trusted. Only
//            images_at() and image_size_bytes() follow pointers, which must be the program's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/cuda/image.h"
#include "wire/status.h"

namespace rgpu::cuda {

inline constexpr size_t kImagesMax = size_t{1} << 16;  // In one call of read_images().
inline constexpr size_t kContainersMax = 4096;         // Behind one wrapper.

// The images in containers (one or several, one after another), a PTX text or a cubin.
[[nodiscard]] Result<std::vector<Image>> read_images(std::span<const std::byte> bytes);

// How many bytes there are behind a pointer that comes without a length: a container's by its
// header, a cubin's by its tables, a text's up to its NUL, which is not counted.
[[nodiscard]] Result<uint64_t> image_size_bytes(const void* image);

// Every piece behind what cuModuleLoadData, cuLibraryLoadData or __cudaRegisterFatBinary were
// given: the above, or the wrapper struct, whose version 2 (-rdc) lists one container a translation
// unit behind the linked one. Pieces without images are left out.
[[nodiscard]] Result<std::vector<std::span<const std::byte>>> images_at(const void* image);

}  // namespace rgpu::cuda
