#include "wire/cuda/fatbin.h"

#include <cstring>
#include <string>
#include <string_view>

#include "wire/cuda/elf_reader.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

constexpr uint32_t kContainerMagic = 0xBA55ED50;
constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr uint32_t kCapabilityMax = 9999;

// The container: this, then items, each a header, then its payload.
struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_size_bytes;
  uint64_t items_size_bytes;
};
static_assert(sizeof(ContainerHeader) == 16);

struct ItemHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_size_bytes;   // With what the offsets below point to, behind this struct.
  uint64_t payload_size_bytes;  // Padded to 8.
  uint32_t packed_size_bytes;   // Of the payload, without padding; 0 where it is raw.
  uint32_t options_offset_bytes;
  uint16_t code_minor;
  uint16_t code_major;
  uint32_t capability;
  uint32_t name_offset_bytes;
  uint32_t name_size_bytes;
  uint64_t flags;
  uint64_t reserved;
  uint64_t unpacked_size_bytes;  // 0 where it is raw.
};
static_assert(sizeof(ItemHeader) == 64);

constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr uint64_t kFlagSpecific = 0x100000;
constexpr uint64_t kFlagFamily = 0x200000;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* name_or_list;
};
static_assert(sizeof(Wrapper) == 24);

template <typename T>
T load(const void* at) {
  T value;
  std::memcpy(static_cast<void*>(&value), at, sizeof value);
  return value;
}

Status error_of(const std::string& what) { return {Code::kInvalidArgument, "fatbinary: " + what}; }

ImageKind kind_of(uint16_t kind) {
  switch (kind) {
    case 1:
      return ImageKind::kPtx;
    case 2:
      return ImageKind::kCubin;
    case 8:
      return ImageKind::kLtoIr;
    default:
      return ImageKind::kOther;
  }
}

Status read_sizes(const ItemHeader& header, std::span<const std::byte> payload, Image& image) {
  const bool is_packed = (header.flags & (kFlagLz4 | kFlagZstd)) != 0;
  if (!is_packed) {
    if (payload.size() > kImageBytesMax) return error_of("an image beyond 1 GiB");
    image.stored = payload;
    image.unpacked_size_bytes = payload.size();
    return {};
  }
  if ((header.flags & kFlagLz4) != 0 && (header.flags & kFlagZstd) != 0) {
    return error_of("an image compressed in two ways");
  }
  if (header.packed_size_bytes > payload.size()) {
    return error_of("a compressed image of " + std::to_string(header.packed_size_bytes) +
                    " bytes in " + std::to_string(payload.size()));
  }
  if (header.unpacked_size_bytes > kImageBytesMax) {
    return error_of("an image of " + std::to_string(header.unpacked_size_bytes) +
                    " bytes; 1 GiB is the most");
  }
  image.packing = (header.flags & kFlagZstd) != 0 ? Packing::kZstd : Packing::kLz4;
  image.stored = payload.first(header.packed_size_bytes);
  image.unpacked_size_bytes = header.unpacked_size_bytes;
  return {};
}

Result<Image> read_item(const ItemHeader& header, std::span<const std::byte> item) {
  Image image;
  image.kind = kind_of(header.kind);
  image.flags = header.flags;
  image.arch.capability = header.capability;
  if (header.capability > kCapabilityMax) {
    return error_of("an image for compute capability " + std::to_string(header.capability));
  }
  if ((header.flags & kFlagSpecific) != 0) image.arch.variant = ArchVariant::kSpecific;
  if ((header.flags & kFlagFamily) != 0) image.arch.variant = ArchVariant::kFamily;
  const std::span<const std::byte> head = item.first(header.header_size_bytes);
  if (header.name_size_bytes != 0) {
    if (header.name_offset_bytes > head.size() ||
        header.name_size_bytes > head.size() - header.name_offset_bytes) {
      return error_of("an image's name outside its header");
    }
    image.name = {reinterpret_cast<const char*>(head.data()) + header.name_offset_bytes,
                  header.name_size_bytes};
  }
  RGPU_RETURN_IF_ERROR(read_sizes(header, item.subspan(header.header_size_bytes), image));
  return image;
}

Status read_items(std::span<const std::byte> items, uint32_t container, std::vector<Image>& out) {
  while (!items.empty()) {
    if (items.size() < sizeof(ItemHeader)) return error_of("an image's header cut short");
    const auto header = load<ItemHeader>(items.data());
    if (header.header_size_bytes < sizeof(ItemHeader) || header.header_size_bytes > items.size() ||
        header.payload_size_bytes > items.size() - header.header_size_bytes) {
      return error_of("an image beyond its container's end");
    }
    if (out.size() == kImagesMax) return error_of("more than 65536 images");
    const uint64_t size = header.header_size_bytes + header.payload_size_bytes;
    Result<Image> image = read_item(header, items.first(size));
    if (!image) return image.error();
    image->container = container;
    out.push_back(*image);
    items = items.subspan(size);
  }
  return {};
}

Result<uint64_t> container_size_bytes(const ContainerHeader& header) {
  if (header.version != 1 || header.header_size_bytes < sizeof(ContainerHeader)) {
    return error_of("a container of version " + std::to_string(header.version) +
                    " with a header of " + std::to_string(header.header_size_bytes) + " bytes");
  }
  const uint64_t size_max = UINT64_MAX - header.header_size_bytes;
  if (header.items_size_bytes > size_max) return error_of("a container without an end");
  return header.header_size_bytes + header.items_size_bytes;
}

// Between containers of one section, and behind the last, there may be zeros up to a multiple of 8.
void skip_padding(std::span<const std::byte>& bytes) {
  while (!bytes.empty() && bytes.front() == std::byte{0}) bytes = bytes.subspan(1);
}

Result<std::vector<Image>> read_containers(std::span<const std::byte> bytes) {
  std::vector<Image> images;
  for (uint32_t container = 0; !bytes.empty(); ++container) {
    if (bytes.size() < sizeof(ContainerHeader)) return error_of("a container cut short");
    const auto header = load<ContainerHeader>(bytes.data());
    if (header.magic != kContainerMagic) return error_of("no container where one must follow");
    Result<uint64_t> size = container_size_bytes(header);
    if (!size) return size.error();
    if (*size > bytes.size()) {
      return error_of("a container of " + std::to_string(*size) + " bytes in " +
                      std::to_string(bytes.size()));
    }
    const std::span<const std::byte> items = bytes.first(*size).subspan(header.header_size_bytes);
    RGPU_RETURN_IF_ERROR(read_items(items, container, images));
    bytes = bytes.subspan(*size);
    skip_padding(bytes);
  }
  return images;
}

// Whether there is anything behind a container's header; -rdc leaves empty linked ones.
bool has_items(const void* container) {
  return load<ContainerHeader>(container).items_size_bytes != 0;
}

Status add_container(const void* at, std::vector<std::span<const std::byte>>& out) {
  if (at == nullptr || load<uint32_t>(at) != kContainerMagic) {
    return error_of("its wrapper does not point to a container");
  }
  Result<uint64_t> size = image_size_bytes(at);
  if (!size) return size.error();
  if (!has_items(at)) return {};
  if (out.size() == kContainersMax) return error_of("more than 4096 containers");
  out.emplace_back(static_cast<const std::byte*>(at), *size);
  return {};
}

}  // namespace

Result<std::vector<Image>> read_images(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(uint32_t)) return error_of("shorter than any image");
  const auto magic = load<uint32_t>(bytes.data());
  if (magic == kContainerMagic) return read_containers(bytes);
  if (bytes.size() > kImageBytesMax) return error_of("an image beyond 1 GiB");
  Image image;
  image.stored = bytes;
  image.unpacked_size_bytes = bytes.size();
  if (magic == kElfMagic) {
    Result<ElfReader> elf = ElfReader::open(bytes);
    if (!elf) return elf.error();
    image.kind = ImageKind::kCubin;
    image.arch = elf->arch();
  } else {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    Result<PtxHeader> header = header_of_ptx(text);
    if (!header) {
      return Status(Code::kInvalidArgument,
                    "neither a fatbinary nor a cubin nor PTX: " + header.error().message());
    }
    image.kind = ImageKind::kPtx;
    image.arch = header->arch;
  }
  return std::vector<Image>{image};
}

Result<uint64_t> image_size_bytes(const void* image) {
  // A text may be shorter than a magic number.
  const auto* const text = static_cast<const char*>(image);
  const size_t size = ::strnlen(text, sizeof(uint32_t));
  if (size == sizeof(uint32_t)) {
    const auto magic = load<uint32_t>(image);
    if (magic == kContainerMagic) return container_size_bytes(load<ContainerHeader>(image));
    if (magic == kElfMagic) return elf_size_bytes(static_cast<const std::byte*>(image));
    if (magic == kWrapperMagic) return error_of("a wrapper, which has no size of its own");
  }
  const size_t length = ::strnlen(text, kImageBytesMax);
  if (length == kImageBytesMax) return error_of("a text without an end within 1 GiB");
  return uint64_t{length};
}

Result<std::vector<std::span<const std::byte>>> images_at(const void* image) {
  if (image == nullptr) return error_of("no image");
  std::vector<std::span<const std::byte>> pieces;
  const bool has_magic = ::strnlen(static_cast<const char*>(image), 4) == sizeof(uint32_t);
  if (!has_magic || load<uint32_t>(image) != kWrapperMagic) {
    Result<uint64_t> size = image_size_bytes(image);
    if (!size) return size.error();
    pieces.emplace_back(static_cast<const std::byte*>(image), *size);
    return pieces;
  }
  const auto wrapper = load<Wrapper>(image);
  if (wrapper.version != 1 && wrapper.version != 2) {
    return error_of("a wrapper of version " + std::to_string(wrapper.version));
  }
  RGPU_RETURN_IF_ERROR(add_container(wrapper.data, pieces));
  if (wrapper.version == 1 || wrapper.name_or_list == nullptr) return pieces;
  const auto* const list = static_cast<const std::byte*>(wrapper.name_or_list);
  for (size_t i = 0; i <= kContainersMax; ++i) {
    const auto* const container = load<const void*>(list + i * sizeof(void*));
    if (container == nullptr) return pieces;
    RGPU_RETURN_IF_ERROR(add_container(container, pieces));
  }
  return error_of("more than 4096 containers");
}

}  // namespace rgpu::cuda
