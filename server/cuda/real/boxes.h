// Boxes of bytes in memory, cut into pieces that one call of CUDA's can copy.
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "server/cuda/driver.h"
#include "server/cuda/real/driver_symbols.h"

namespace rgpu::server::cuda {

[[nodiscard]] inline uint64_t size_bytes_of(const wire::cuda::Extent& extent) {
  return extent.width_bytes * extent.height * extent.depth;
}
// Whether the box's bytes follow one another without gaps.
[[nodiscard]] inline bool is_packed(const wire::cuda::Box& box, const wire::cuda::Extent& extent) {
  return (extent.height == 1 || box.row_pitch_bytes == extent.width_bytes) &&
         (extent.depth == 1 || box.slice_pitch_bytes == extent.width_bytes * extent.height);
}
// Whether CUDA can say it: slices are so many rows apart.
[[nodiscard]] inline bool has_whole_slices(const wire::cuda::Box& box,
                                           const wire::cuda::Extent& extent) {
  return extent.depth == 1 || extent.height == 1 ||
         (box.row_pitch_bytes != 0 && box.slice_pitch_bytes % box.row_pitch_bytes == 0 &&
          box.slice_pitch_bytes / box.row_pitch_bytes >= extent.height);
}
[[nodiscard]] inline wire::cuda::Box slice_of(const wire::cuda::Box& box, uint64_t z) {
  return {box.address + z * box.slice_pitch_bytes, box.row_pitch_bytes, box.slice_pitch_bytes};
}
[[nodiscard]] inline wire::cuda::Box packed_box(uint64_t address,
                                                const wire::cuda::Extent& extent) {
  return {address, extent.width_bytes, extent.width_bytes * extent.height};
}

// Calls `piece(box, extent, offset if packed)` until one returns what is not kSuccess, with at most
// `size_bytes_max` at once.
template <typename Piece>
int for_each_piece(const wire::cuda::Box& box, const wire::cuda::Extent& extent,
                   uint64_t size_bytes_max, Piece piece) {
  const uint64_t size_bytes = size_bytes_of(extent);
  if (size_bytes == 0) return kSuccess;
  if (size_bytes <= size_bytes_max && (is_packed(box, extent) || has_whole_slices(box, extent))) {
    return piece(box, extent, uint64_t{0});
  }
  if (is_packed(box, extent)) {
    for (uint64_t at = 0; at < size_bytes;) {
      const uint64_t size = std::min(size_bytes - at, size_bytes_max);
      const int code =
          piece(wire::cuda::Box{box.address + at, size, size}, wire::cuda::Extent{size, 1, 1}, at);
      if (code != kSuccess) return code;
      at += size;
    }
    return kSuccess;
  }
  // Rows; parts of a row where it is so long.
  const uint64_t rows_max = std::max<uint64_t>(1, size_bytes_max / extent.width_bytes);
  for (uint64_t z = 0; z < extent.depth; ++z) {
    for (uint64_t y = 0; y < extent.height;) {
      const uint64_t rows = std::min(extent.height - y, rows_max);
      for (uint64_t x = 0; x < extent.width_bytes;) {
        const uint64_t width = std::min(extent.width_bytes - x, size_bytes_max);
        const wire::cuda::Box part{
            box.address + z * box.slice_pitch_bytes + y * box.row_pitch_bytes + x,
            box.row_pitch_bytes, 0};
        const int code = piece(part, wire::cuda::Extent{width, rows, 1},
                               (z * extent.height + y) * extent.width_bytes + x);
        if (code != kSuccess) return code;
        x += width;
      }
      y += rows;
    }
  }
  return kSuccess;
}

[[nodiscard]] inline CuCopySide device_side(const wire::cuda::Box& box,
                                            const wire::cuda::Extent& extent) {
  CuCopySide side;
  side.device = box.address;
  if (extent.height == 1) {  // Pitches of what there is one of have no meaning.
    side.pitch_bytes = extent.depth == 1 ? extent.width_bytes : box.slice_pitch_bytes;
    side.height = 1;
  } else {
    side.pitch_bytes = box.row_pitch_bytes;
    side.height = extent.depth == 1 ? extent.height : box.slice_pitch_bytes / box.row_pitch_bytes;
  }
  return side;
}
[[nodiscard]] inline CuCopySide host_side(std::byte* packed, const wire::cuda::Extent& extent) {
  CuCopySide side;
  side.memory_type = kCuMemoryHost;
  side.host = packed;
  side.pitch_bytes = extent.width_bytes;
  side.height = extent.height;
  return side;
}
[[nodiscard]] inline CuCopy3D copy_3d_of(const CuCopySide& source, const CuCopySide& target,
                                         const wire::cuda::Extent& extent) {
  return {source, target, extent.width_bytes, extent.height, extent.depth};
}

}  // namespace rgpu::server::cuda
