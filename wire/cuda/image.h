// Image: a PTX text or a cubin as it is stored in a fatbinary; unpacking it, choosing among
// several.
//
// Threading: plain values and functions over the caller's bytes; any thread.
// Lifetime:  an Image refers to the bytes it was read from and owns nothing.
// Errors:    kInvalidArgument names what is wrong with the bytes, which are not trusted;
//            kUnimplemented where they are of a kind that only NVIDIA's tools read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/status.h"

namespace rgpu::cuda {

inline constexpr uint64_t kImageBytesMax = uint64_t{1} << 30;  // Unpacked.

// The suffix of sm_90a and sm_100f: runs on that capability alone, or on its major version from
// there on.
enum class ArchVariant : uint8_t { kPlain, kSpecific, kFamily };

struct Arch {
  uint32_t capability = 0;  // 89 is 8.9, 100 is 10.0.
  ArchVariant variant = ArchVariant::kPlain;

  // Whether PTX for this runs on a device of that compute capability.
  [[nodiscard]] bool runs_on(uint32_t device_capability) const noexcept;
  // "90a"
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Arch&, const Arch&) = default;
};

// "8.9" of 89.
[[nodiscard]] std::string capability_text(uint32_t capability);

enum class ImageKind : uint8_t {
  kPtx = 1,
  kCubin = 2,
  kLtoIr = 8,    // Link-time optimisation's intermediate code: nothing here can read it.
  kOther = 255,  // Listed, so that errors can say what there is.
};
enum class Packing : uint8_t { kRaw, kZstd, kLz4 };

struct Image {
  ImageKind kind = ImageKind::kOther;
  Packing packing = Packing::kRaw;
  Arch arch;
  uint32_t container = 0;  // Which container of the input it stood in; a translation unit each.
  uint64_t flags = 0;      // Of its header; 0 outside a container. Bit 1: compiled for debugging.
  std::string_view name;   // The source file's, where the compiler noted it.
  uint64_t unpacked_size_bytes = 0;
  std::span<const std::byte> stored;
};

// The image as the compiler made it: a PTX text without NULs at its end, or a cubin.
[[nodiscard]] Result<std::vector<std::byte>> unpack(const Image& image);
// The same, without a copy where it is stored raw: `storage` is then left alone.
[[nodiscard]] Result<std::span<const std::byte>> unpack(const Image& image,
                                                        std::vector<std::byte>& storage);

// The newest PTX that the device can run; of equals the one with the fewest special features.
struct PtxChoice {
  size_t index = 0;  // In `images`.
  Arch arch;
};
// The error lists what there is and says how to get what is needed.
[[nodiscard]] Result<PtxChoice> choose_ptx(std::span<const Image> images,
                                           uint32_t device_capability);

}  // namespace rgpu::cuda
