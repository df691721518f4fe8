// Which image of several is read.
#include "wire/cuda/kernel_parameters.h"

#include <gtest/gtest.h>

#include "tests/wire/cuda/fixture.h"
#include "wire/cuda/fatbin.h"

namespace rgpu::cuda {
namespace {

class FactsFor : public testing::Test {
 protected:
  // The architecture that was read, and whether from PTX; or the error.
  std::string read(const std::vector<Image>& images, uint32_t capability) {
    Result<ImageFacts> facts = facts_for(images, capability);
    if (!facts) return facts.error().message();
    EXPECT_NE(find_kernel(*facts, "add"), nullptr);
    return (facts->ptx_version != 0 ? "compute_" : "sm_") + facts->arch.to_string();
  }
  std::vector<Image> images(const std::string& name) {
    bytes_.push_back(fixture(name));
    Result<std::vector<Image>> images = read_images(bytes_.back());
    RGPU_CHECK(images.has_value());
    return *images;
  }

  std::vector<std::vector<std::byte>> bytes_;  // What the images refer to.
};

TEST_F(FactsFor, ThePtxThatRunsComesFirst) {
  const std::vector<Image> several = images("several.fatbin");
  EXPECT_EQ(read(several, 89), "compute_80");
  EXPECT_EQ(read(several, 90), "compute_90a");
  EXPECT_EQ(read(several, 103), "compute_100f");
}

TEST_F(FactsFor, ThenTheDevicesOwnCode) {
  std::vector<Image> code;
  for (const Image& image : images("several.fatbin")) {
    if (image.kind == ImageKind::kCubin) code.push_back(image);
  }
  EXPECT_EQ(read(code, 89), "sm_80");
  EXPECT_EQ(read(code, 90), "sm_90");
  EXPECT_EQ(read(code, 100), "sm_100");
}

TEST_F(FactsFor, ThenWhateverThereIs) {
  EXPECT_EQ(read(images("code_only.fatbin"), 75), "sm_90");
  EXPECT_EQ(read(images("debug.fatbin"), 75), "compute_80");
}

TEST_F(FactsFor, WhatNobodyCanReadIsAnError) {
  EXPECT_EQ(read(images("lto.fatbin"), 80),
            "the program holds lto_80 intermediate code; the device is 8.0: build with -gencode "
            "arch=compute_80,code=compute_80");
  EXPECT_NE(read({}, 80), "");
}

}  // namespace
}  // namespace rgpu::cuda
