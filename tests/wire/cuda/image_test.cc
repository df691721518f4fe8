// Unpacking what nvcc packed, and what lies about itself; the choice among several PTX images.
#include "wire/cuda/image.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/wire/cuda/fixture.h"
#include "wire/cuda/fatbin.h"

namespace rgpu::cuda {
namespace {

// The last image of a fixture; `bytes` is what it refers to.
Image last_image(const std::string& name, std::vector<std::byte>& bytes) {
  bytes = fixture(name);
  Result<std::vector<Image>> images = read_images(bytes);
  RGPU_CHECK(images.has_value() && !images->empty());
  return images->back();
}

std::string error_of(const Image& image) {
  const auto unpacked = unpack(image);
  return unpacked ? "" : unpacked.error().message();
}

Image image_for(ImageKind kind, uint32_t capability, ArchVariant variant = ArchVariant::kPlain) {
  Image image;
  image.kind = kind;
  image.arch = {capability, variant};
  return image;
}

TEST(Unpack, GivesOneTextHoweverItWasPacked) {
  std::vector<std::byte> bytes;
  std::vector<std::string> texts;
  for (const std::string name : {"default.fatbin", "lz4.fatbin", "raw.fatbin"}) {
    const auto unpacked = unpack(last_image(name, bytes));
    ASSERT_TRUE(unpacked) << name << ": " << unpacked.error().message();
    texts.push_back(text_of(*unpacked));
    EXPECT_NE(texts.back().find(".visible .entry add("), std::string::npos);
    EXPECT_NE(texts.back().back(), '\0') << name;
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(Unpack, GivesTheCubinThatTheCompilerWrote) {
  std::vector<std::byte> bytes = fixture("several.fatbin");
  Result<std::vector<Image>> images = read_images(bytes);
  ASSERT_TRUE(images);
  const auto unpacked = unpack(images->front());
  ASSERT_TRUE(unpacked) << unpacked.error().message();
  EXPECT_EQ(*unpacked, fixture("small_80.cubin"));
}

TEST(Unpack, CopiesNothingThatIsRaw) {
  std::vector<std::byte> bytes;
  const Image image = last_image("raw.fatbin", bytes);
  std::vector<std::byte> storage;
  const auto unpacked = unpack(image, storage);
  ASSERT_TRUE(unpacked);
  EXPECT_EQ(unpacked->data(), image.stored.data());
  EXPECT_TRUE(storage.empty());
}

TEST(Unpack, AnotherSizeThanPromisedIsAnError) {
  std::vector<std::byte> bytes;
  for (const std::string name : {"default.fatbin", "lz4.fatbin"}) {
    const Image good = last_image(name, bytes);
    for (const int64_t wrong : {-1, -100, 1, 100}) {
      Image image = good;
      image.unpacked_size_bytes += static_cast<uint64_t>(wrong);
      EXPECT_NE(error_of(image), "") << name << wrong;
    }
    Image image = good;
    image.unpacked_size_bytes = 0;
    EXPECT_NE(error_of(image), "") << name;
  }
}

TEST(Unpack, HugePromisesAllocateNothing) {
  std::vector<std::byte> bytes;
  Image image = last_image("lz4.fatbin", bytes);
  image.unpacked_size_bytes = kImageBytesMax;
  EXPECT_EQ(error_of(image), "fatbinary: 594 compressed bytes cannot hold 1073741824");
  image = last_image("default.fatbin", bytes);
  image.unpacked_size_bytes = kImageBytesMax;
  EXPECT_EQ(error_of(image), "fatbinary: 445 compressed bytes cannot hold 1073741824");
}

TEST(Unpack, DamagedBytesAreAnError) {
  std::vector<std::byte> bytes;
  for (const std::string name : {"default.fatbin", "lz4.fatbin"}) {
    Image image = last_image(name, bytes);
    const size_t size = image.stored.size();
    image.stored = image.stored.first(size / 2);
    EXPECT_NE(error_of(image), "") << name << " cut";
  }
  Image image = last_image("default.fatbin", bytes);
  std::vector<std::byte> damaged(image.stored.begin(), image.stored.end());
  damaged[0] = std::byte{0};
  image.stored = damaged;
  EXPECT_EQ(error_of(image), "fatbinary: zstd says: Unknown frame descriptor");
}

TEST(Unpack, OtherKindsAreSaidToBeSo) {
  std::vector<std::byte> bytes;
  const auto lto = unpack(last_image("lto.fatbin", bytes));
  EXPECT_EQ(lto.error().code(), Code::kUnimplemented);
  EXPECT_EQ(lto.error().message(), "fatbinary: code for link-time optimisation (-dlto)");
  EXPECT_EQ(error_of(image_for(ImageKind::kOther, 80)), "fatbinary: an image of an unknown kind");
}

TEST(Arch, RunsOnWhatItsVariantAllows) {
  EXPECT_TRUE((Arch{80}.runs_on(80)));
  EXPECT_TRUE((Arch{80}.runs_on(89)));
  EXPECT_TRUE((Arch{80}.runs_on(120)));
  EXPECT_FALSE((Arch{80}.runs_on(75)));
  const Arch specific{90, ArchVariant::kSpecific};
  EXPECT_TRUE(specific.runs_on(90));
  EXPECT_FALSE(specific.runs_on(100));
  EXPECT_FALSE(specific.runs_on(89));
  const Arch family{100, ArchVariant::kFamily};
  EXPECT_TRUE(family.runs_on(100));
  EXPECT_TRUE(family.runs_on(103));
  EXPECT_FALSE(family.runs_on(110));
  EXPECT_FALSE(family.runs_on(90));
}

TEST(ChoosePtx, TakesTheNewestThatRuns) {
  const std::vector<std::byte> bytes = fixture("several.fatbin");
  Result<std::vector<Image>> images = read_images(bytes);
  ASSERT_TRUE(images);
  const auto chosen = [&](uint32_t capability) {
    Result<PtxChoice> choice = choose_ptx(*images, capability);
    return choice ? (*images)[choice->index].arch.to_string() : choice.error().message();
  };
  EXPECT_EQ(chosen(80), "80");
  EXPECT_EQ(chosen(89), "80");
  EXPECT_EQ(chosen(90), "90a");
  EXPECT_EQ(chosen(100), "100f");
  EXPECT_EQ(chosen(103), "100f");
  EXPECT_EQ(chosen(120), "80");
  EXPECT_EQ(chosen(75),
            "the program holds sm_80, sm_90a, sm_100f code and compute_80, compute_90a, "
            "compute_100f PTX; the device is 7.5: build with -gencode "
            "arch=compute_75,code=compute_75, or run the emulated device with --cuda-arch 8.0");
}

TEST(ChoosePtx, OfEqualsTakesThePlainOne) {
  const std::vector<Image> images{image_for(ImageKind::kPtx, 90, ArchVariant::kSpecific),
                                  image_for(ImageKind::kPtx, 90),
                                  image_for(ImageKind::kPtx, 90, ArchVariant::kFamily)};
  EXPECT_EQ(choose_ptx(images, 90)->index, 1U);
}

TEST(ChoosePtx, SaysWhatThereIsInstead) {
  std::vector<std::byte> bytes;
  const Image code = last_image("code_only.fatbin", bytes);
  EXPECT_EQ(choose_ptx(std::span(&code, 1), 89).error().message(),
            "the program holds sm_90 code; the device is 8.9: build with -gencode "
            "arch=compute_89,code=compute_89");
  const Image lto = image_for(ImageKind::kLtoIr, 80);
  EXPECT_EQ(choose_ptx(std::span(&lto, 1), 100).error().message(),
            "the program holds lto_80 intermediate code; the device is 10.0: build with -gencode "
            "arch=compute_100,code=compute_100");
  EXPECT_EQ(choose_ptx({}, 89).error().message().substr(0, 25), "the program holds nothing");
  std::vector<Image> many;
  for (uint32_t i = 0; i < 5000; ++i) many.push_back(image_for(ImageKind::kPtx, 100 + i));
  EXPECT_LT(choose_ptx(many, 89).error().message().size(), 500U);
}

}  // namespace
}  // namespace rgpu::cuda
