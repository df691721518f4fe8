#include "wire/cuda/image.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

namespace rgpu::cuda {
namespace {

Status error_of(const std::string& what) { return {Code::kInvalidArgument, "fatbinary: " + what}; }

std::string_view without_nuls(std::string_view text) {
  const size_t last = text.find_last_not_of('\0');
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// An upper bound by the format, before anything is allocated: what an attacker can make us hold is
// in proportion to what he sends.
bool can_hold(const Image& image) {
  constexpr uint64_t kZstdBlockMax = uint64_t{128} << 10;
  constexpr uint64_t kZstdBlockHeader = 3;
  constexpr uint64_t kLz4RatioMax = 255;
  const uint64_t size = image.stored.size();
  return image.unpacked_size_bytes <= (image.packing == Packing::kLz4
                                           ? (size + 1) * kLz4RatioMax
                                           : (size / kZstdBlockHeader + 1) * kZstdBlockMax);
}

Status decompress(const Image& image, std::vector<std::byte>& out) {
  if (!can_hold(image)) {
    return error_of(std::to_string(image.stored.size()) + " compressed bytes cannot hold " +
                    std::to_string(image.unpacked_size_bytes));
  }
  out.resize(image.unpacked_size_bytes);
  uint64_t size = 0;
  if (image.packing == Packing::kZstd) {
    const size_t result =
        ZSTD_decompress(out.data(), out.size(), image.stored.data(), image.stored.size());
    if (ZSTD_isError(result) != 0) {
      return error_of(std::string("zstd says: ") + ZSTD_getErrorName(result));
    }
    size = result;
  } else {
    // Both sizes are below 2 GiB: the image's by its limit, the packed one's by the check here.
    if (image.stored.size() > kImageBytesMax) return error_of("an image beyond 1 GiB");
    const int result = LZ4_decompress_safe(
        reinterpret_cast<const char*>(image.stored.data()), reinterpret_cast<char*>(out.data()),
        static_cast<int>(image.stored.size()), static_cast<int>(out.size()));
    if (result < 0) return error_of("LZ4 data that is damaged");
    size = static_cast<uint64_t>(result);
  }
  if (size != image.unpacked_size_bytes) {
    return error_of("an image unpacks to " + std::to_string(size) + " bytes, not to " +
                    std::to_string(image.unpacked_size_bytes));
  }
  return {};
}

// "sm_75, sm_90a code and compute_90 PTX"
std::string description_of(std::span<const Image> images) {
  constexpr size_t kNamedMax = 12;
  std::array<std::string, 3> lists;  // By kind: code, PTX, LTO.
  std::set<std::pair<size_t, std::string>> seen;
  for (const Image& image : images) {
    const bool is_ptx = image.kind == ImageKind::kPtx;
    const bool is_code = image.kind == ImageKind::kCubin;
    if (!is_ptx && !is_code && image.kind != ImageKind::kLtoIr) continue;
    const size_t which = is_code ? 0 : is_ptx ? 1 : 2;
    if (seen.size() > kNamedMax || !seen.emplace(which, image.arch.to_string()).second) continue;
    std::string& list = lists.at(which);
    if (!list.empty()) list += ", ";
    list += seen.size() > kNamedMax
                ? "…"
                : std::array{"sm_", "compute_", "lto_"}.at(which) + image.arch.to_string();
  }
  std::string text;
  for (size_t which = 0; which < lists.size(); ++which) {
    if (lists.at(which).empty()) continue;
    if (!text.empty()) text += " and ";
    text += lists.at(which) + std::array{" code", " PTX", " intermediate code"}.at(which);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

bool Arch::runs_on(uint32_t device_capability) const noexcept {
  switch (variant) {
    case ArchVariant::kSpecific:
      return device_capability == capability;
    case ArchVariant::kFamily:
      return device_capability >= capability && device_capability / 10 == capability / 10;
    case ArchVariant::kPlain:
      break;
  }
  return device_capability >= capability;
}

std::string Arch::to_string() const {
  const char* const suffix = variant == ArchVariant::kSpecific ? "a"
                             : variant == ArchVariant::kFamily ? "f"
                                                               : "";
  return std::to_string(capability) + suffix;
}

std::string capability_text(uint32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

Result<std::span<const std::byte>> unpack(const Image& image, std::vector<std::byte>& storage) {
  if (image.kind == ImageKind::kOther) return error_of("an image of an unknown kind");
  if (image.kind == ImageKind::kLtoIr) {
    return Status(Code::kUnimplemented, "fatbinary: code for link-time optimisation (-dlto)");
  }
  std::span<const std::byte> bytes = image.stored;
  if (image.packing != Packing::kRaw) {
    RGPU_RETURN_IF_ERROR(decompress(image, storage));
    bytes = storage;
  }
  if (image.kind != ImageKind::kPtx) return bytes;
  const auto* const start = reinterpret_cast<const char*>(bytes.data());
  return bytes.first(without_nuls({start, bytes.size()}).size());
}

Result<std::vector<std::byte>> unpack(const Image& image) {
  std::vector<std::byte> storage;
  Result<std::span<const std::byte>> bytes = unpack(image, storage);
  if (!bytes) return bytes.error();
  if (image.packing == Packing::kRaw) return std::vector<std::byte>(bytes->begin(), bytes->end());
  storage.resize(bytes->size());
  return storage;
}

Result<PtxChoice> choose_ptx(std::span<const Image> images, uint32_t device_capability) {
  std::optional<PtxChoice> best;
  std::optional<uint32_t> lowest;  // Of any PTX.
  const auto rank = [](const Arch& arch) {
    // Of equals, the plain one asks least of whoever runs it.
    return std::pair(arch.capability, -static_cast<int>(arch.variant));
  };
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].kind != ImageKind::kPtx) continue;
    lowest = std::min(lowest.value_or(UINT32_MAX), images[i].arch.capability);
    if (!images[i].arch.runs_on(device_capability)) continue;
    if (!best || rank(images[i].arch) > rank(best->arch)) best = PtxChoice{i, images[i].arch};
  }
  if (best) return *best;
  std::string text = "the program holds " + description_of(images) + "; the device is " +
                     capability_text(device_capability) + ": build with -gencode arch=compute_" +
                     std::to_string(device_capability) + ",code=compute_" +
                     std::to_string(device_capability);
  if (lowest) text += ", or run the emulated device with --cuda-arch " + capability_text(*lowest);
  return Status(Code::kInvalidArgument, text);
}

}  // namespace rgpu::cuda
