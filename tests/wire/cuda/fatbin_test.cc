// What nvcc made, read; then the same with one thing wrong at a time.
#include "wire/cuda/fatbin.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/wire/cuda/fixture.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kContainerHeader = 16;
constexpr size_t kItemHeader = 64;

std::vector<Image> images_of(std::span<const std::byte> bytes) {
  Result<std::vector<Image>> images = read_images(bytes);
  EXPECT_TRUE(images) << images.error().message();
  return images ? *images : std::vector<Image>();
}

std::string error_of(std::span<const std::byte> bytes) {
  Result<std::vector<Image>> images = read_images(bytes);
  return images ? "" : images.error().message();
}

template <typename T>
std::vector<std::byte> with(std::vector<std::byte> bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

TEST(Fatbin, HoldsARawCubinAndCompressedPtx) {
  const std::vector<std::byte> bytes = fixture("default.fatbin");
  const std::vector<Image> images = images_of(bytes);
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].kind, ImageKind::kCubin);
  EXPECT_EQ(images[0].packing, Packing::kRaw);
  EXPECT_EQ(images[0].arch, Arch{75});
  EXPECT_EQ(text_of(images[0].stored).substr(1, 3), "ELF");
  EXPECT_EQ(images[0].unpacked_size_bytes, images[0].stored.size());
  EXPECT_EQ(images[1].kind, ImageKind::kPtx);
  EXPECT_EQ(images[1].packing, Packing::kZstd);
  EXPECT_EQ(images[1].arch, Arch{75});
  EXPECT_GT(images[1].unpacked_size_bytes, images[1].stored.size());
}

TEST(Fatbin, HoldsLz4AndRawPtxToo) {
  const std::vector<std::byte> lz4 = fixture("lz4.fatbin");
  ASSERT_EQ(images_of(lz4).size(), 1U);
  EXPECT_EQ(images_of(lz4)[0].packing, Packing::kLz4);
  const std::vector<std::byte> raw = fixture("raw.fatbin");
  ASSERT_EQ(images_of(raw).size(), 1U);
  EXPECT_EQ(images_of(raw)[0].packing, Packing::kRaw);
}

TEST(Fatbin, TellsArchitecturesAndTheirVariants) {
  const std::vector<std::byte> bytes = fixture("several.fatbin");
  std::vector<std::string> found;
  for (const Image& image : images_of(bytes)) {
    found.push_back((image.kind == ImageKind::kPtx ? "compute_" : "sm_") + image.arch.to_string());
    EXPECT_EQ(image.packing, Packing::kZstd);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"sm_80", "compute_80", "sm_90a", "compute_90a",
                                             "sm_100f", "compute_100f"}));
}

TEST(Fatbin, KeepsTheNameOfTheSource) {
  const std::vector<std::byte> bytes = fixture("debug.fatbin");
  ASSERT_EQ(images_of(bytes).size(), 1U);
  EXPECT_EQ(images_of(bytes)[0].name, "small.cu");
  EXPECT_EQ(images_of(bytes)[0].flags & 2, 2U);
}

TEST(Fatbin, KnowsCodeForLinkTimeOptimisation) {
  const std::vector<std::byte> bytes = fixture("lto.fatbin");
  ASSERT_EQ(images_of(bytes).size(), 1U);
  EXPECT_EQ(images_of(bytes)[0].kind, ImageKind::kLtoIr);
}

TEST(Fatbin, ContainersFollowOneAnother) {
  std::vector<std::byte> bytes = fixture("part_a.fatbin");
  bytes.resize(bytes.size() + 8);
  const std::vector<std::byte> second = fixture("part_b.fatbin");
  bytes.insert(bytes.end(), second.begin(), second.end());
  const std::vector<Image> images = images_of(bytes);
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0].container, 0U);
  EXPECT_EQ(images[1].container, 1U);
  bytes.resize(bytes.size() + 3);
  EXPECT_EQ(images_of(bytes).size(), 2U) << "padding at the end";
  bytes.back() = std::byte{1};
  EXPECT_EQ(error_of(bytes), "fatbinary: a container cut short");
}

TEST(Fatbin, PtxAndCubinsAreImagesThemselves) {
  const std::vector<std::byte> ptx = fixture("layouts_90.ptx");
  ASSERT_EQ(images_of(ptx).size(), 1U);
  EXPECT_EQ(images_of(ptx)[0].kind, ImageKind::kPtx);
  EXPECT_EQ(images_of(ptx)[0].arch, Arch{90});
  for (const uint32_t capability : {75U, 80U, 90U, 100U}) {
    const std::vector<std::byte> cubin =
        fixture("layouts_" + std::to_string(capability) + ".cubin");
    ASSERT_EQ(images_of(cubin).size(), 1U);
    EXPECT_EQ(images_of(cubin)[0].kind, ImageKind::kCubin);
    EXPECT_EQ(images_of(cubin)[0].arch, Arch{capability});
  }
}

TEST(Fatbin, SomethingElseIsAnError) {
  const std::string text = "int main() {}";
  EXPECT_EQ(error_of(std::as_bytes(std::span(text))),
            "neither a fatbinary nor a cubin nor PTX: PTX line 1: no .version, at 'int'");
  EXPECT_EQ(error_of({}), "fatbinary: shorter than any image");
}

// Behind the last byte there is none to read: the sanitizers see what goes further.
TEST(Fatbin, NoPrefixIsTakenForTheWhole) {
  for (const std::string& name : fixture_names(".fatbin")) {
    const std::vector<std::byte> bytes = fixture(name);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> prefix(bytes.begin(),
                                          bytes.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_NE(error_of(prefix), "") << name << " cut to " << size;
    }
  }
}

TEST(Fatbin, SizesThatLieAreErrors) {
  const std::vector<std::byte> bytes = fixture("lz4.fatbin");
  const size_t item = kContainerHeader;
  EXPECT_EQ(error_of(with<uint64_t>(bytes, 8, UINT64_MAX)),
            "fatbinary: a container without an end");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, 4, 7)),
            "fatbinary: a container of version 7 with a header of 16 bytes");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, 6, 8)),
            "fatbinary: a container of version 1 with a header of 8 bytes");
  for (const uint32_t header_size : {0U, 63U, 100'000U, UINT32_MAX}) {
    EXPECT_EQ(error_of(with(bytes, item + 4, header_size)),
              "fatbinary: an image beyond its container's end");
  }
  for (const uint64_t payload_size : {uint64_t{100'000}, UINT64_MAX, UINT64_MAX - kItemHeader}) {
    EXPECT_EQ(error_of(with(bytes, item + 8, payload_size)),
              "fatbinary: an image beyond its container's end");
  }
  EXPECT_EQ(error_of(with<uint32_t>(bytes, item + 16, 4000)),
            "fatbinary: a compressed image of 4000 bytes in 600");
  EXPECT_EQ(error_of(with<uint64_t>(bytes, item + 56, kImageBytesMax + 1)),
            "fatbinary: an image of 1073741825 bytes; 1 GiB is the most");
  EXPECT_EQ(error_of(with<uint32_t>(bytes, item + 28, 123456)),
            "fatbinary: an image for compute capability 123456");
  EXPECT_EQ(error_of(with<uint32_t>(bytes, item + 36, 1 << 30)),
            "fatbinary: an image's name outside its header");
  EXPECT_EQ(error_of(with<uint64_t>(bytes, item + 40, 0xA011)),
            "fatbinary: an image compressed in two ways");
}

TEST(Fatbin, HasABoundOnItsImages) {
  const auto container_of = [](size_t images) {
    std::vector<std::byte> bytes(kContainerHeader + images * kItemHeader);
    bytes = with<uint32_t>(std::move(bytes), 0, 0xBA55ED50);
    bytes = with<uint32_t>(std::move(bytes), 4, 16 << 16 | 1);
    bytes = with<uint64_t>(std::move(bytes), 8, images * kItemHeader);
    for (size_t i = 0; i < images; ++i) {
      bytes[kContainerHeader + i * kItemHeader + 4] = std::byte{kItemHeader};
    }
    return bytes;
  };
  const std::vector<std::byte> most = container_of(kImagesMax);
  EXPECT_EQ(images_of(most).size(), kImagesMax);
  EXPECT_EQ(error_of(container_of(kImagesMax + 1)), "fatbinary: more than 65536 images");
}

TEST(ImageSize, IsTheFilesOwn) {
  for (const char* const ending : {".fatbin", ".cubin", ".ptx"}) {
    const std::vector<std::string> names = fixture_names(ending);
    ASSERT_FALSE(names.empty());
    for (const std::string& name : names) {
      std::vector<std::byte> bytes = fixture(name);
      const size_t size = bytes.size();
      bytes.push_back({});  // The end of a text; what nobody counts of others.
      Result<uint64_t> found = image_size_bytes(bytes.data());
      ASSERT_TRUE(found) << name << ": " << found.error().message();
      EXPECT_EQ(*found, size) << name;
    }
  }
  EXPECT_EQ(*image_size_bytes("ab"), 2U);
}

// The struct that nvcc puts into .nvFatBinSegment.
struct Wrapper {
  uint32_t magic = 0x466243B1;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* list = nullptr;
};

const void* address_of(std::span<const void* const> list) {
  return static_cast<const void*>(list.data());
}

TEST(ImagesAt, TheFirstVersionPointsToOneContainer) {
  const std::vector<std::byte> bytes = fixture("default.fatbin");
  const char name[] = "not a list";
  const Wrapper wrapper{.data = bytes.data(), .list = name};
  const auto pieces = images_at(&wrapper);
  ASSERT_TRUE(pieces) << pieces.error().message();
  ASSERT_EQ(pieces->size(), 1U);
  EXPECT_EQ(pieces->front().data(), bytes.data());
  EXPECT_EQ(pieces->front().size(), bytes.size());
}

TEST(ImagesAt, TheSecondVersionListsOneContainerEach) {
  const std::array<uint64_t, 2> linked{uint64_t{16} << 48 | uint64_t{1} << 32 | 0xBA55ED50, 0};
  const std::vector<std::byte> a = fixture("part_a.fatbin");
  const std::vector<std::byte> b = fixture("part_b.fatbin");
  const std::array<const void*, 3> list{a.data(), b.data(), nullptr};
  Wrapper wrapper{.version = 2, .data = linked.data(), .list = address_of(list)};
  auto pieces = images_at(&wrapper);
  ASSERT_TRUE(pieces) << pieces.error().message();
  ASSERT_EQ(pieces->size(), 2U) << "the linked one is empty";
  EXPECT_EQ(pieces->at(0).data(), a.data());
  EXPECT_EQ(pieces->at(1).size(), b.size());

  const std::vector<std::byte> code = fixture("code_only.fatbin");
  wrapper.data = code.data();
  pieces = images_at(&wrapper);
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 3U);
  EXPECT_EQ(pieces->front().size(), code.size()) << "the linked one comes first";
}

TEST(ImagesAt, TakesWhatHasNoWrapper) {
  for (const std::string name : {"raw.fatbin", "small_80.cubin", "small_80.ptx"}) {
    std::vector<std::byte> bytes = fixture(name);
    bytes.push_back({});
    const auto pieces = images_at(bytes.data());
    ASSERT_TRUE(pieces) << pieces.error().message();
    ASSERT_EQ(pieces->size(), 1U);
    EXPECT_EQ(pieces->front().size(), bytes.size() - 1);
  }
}

TEST(ImagesAt, AWrapperThatIsWrongIsAnError) {
  EXPECT_EQ(images_at(nullptr).error().message(), "fatbinary: no image");
  Wrapper wrapper{.version = 3};
  EXPECT_EQ(images_at(&wrapper).error().message(), "fatbinary: a wrapper of version 3");
  wrapper.version = 1;
  EXPECT_EQ(images_at(&wrapper).error().message(),
            "fatbinary: its wrapper does not point to a container");
  EXPECT_EQ(image_size_bytes(&wrapper).error().message(),
            "fatbinary: a wrapper, which has no size of its own");
  const std::vector<std::byte> bytes = fixture("part_a.fatbin");
  const std::vector<const void*> endless(kContainersMax + 1, bytes.data());
  wrapper = {.version = 2, .data = bytes.data(), .list = address_of(endless)};
  EXPECT_EQ(images_at(&wrapper).error().message(), "fatbinary: more than 4096 containers");
  EXPECT_EQ(load<uint32_t>(std::as_bytes(std::span(&wrapper, 1)), 0), 0x466243B1U);
}

}  // namespace
}  // namespace rgpu::cuda
