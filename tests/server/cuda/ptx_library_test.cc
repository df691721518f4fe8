// Cooperative groups, CUB, the half types and the mathematics of the toolkit (kernels/library.cu).
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>

#include "tests/server/cuda/ptx_fixture.h"

namespace rgpu::server::ptx {
namespace {

class PtxLibrary : public PtxTest {
 protected:
  void SetUp() override { open("library.ptx"); }
  void open(const std::string& name) {
    std::ifstream file(std::string(RGPU_PTX_KERNELS "/") + name);
    module_ = load(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  template <typename... Arguments>
  void expect_ok(const std::string& kernel, Shape shape, const Arguments&... arguments) {
    const Fault fault = launch(module_, kernel, shape, arguments...);
    ASSERT_EQ(fault.code, 0) << fault.message;
  }
  std::shared_ptr<Module> module_;
};

TEST_F(PtxLibrary, GridsSynchronizeHoweverManyBlocks) {
  for (const uint32_t blocks : {1U, 3U, 200U}) {
    const uint32_t n = blocks * 64;
    const DeviceArray<int> a(memory_, n);
    const DeviceArray<int> b(memory_, n);
    expect_ok("grid_sync", {.grid = {blocks, 1, 1}, .block = {64, 1, 1}, .cooperative = true},
              a.address(), b.address(), n);
    for (uint32_t i = 0; i < n; ++i)
      ASSERT_EQ(a[i], static_cast<int>(2 * ((n - 1 - i + n / 2) % n)));
  }
}

TEST_F(PtxLibrary, TilesReduceAndScan) {
  std::vector<int> in(96);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 7 % 31);
  const DeviceArray<int> din(memory_, in);
  const DeviceArray<int> sums(memory_, 96);
  const DeviceArray<int> scans(memory_, 96);
  const DeviceArray<int> sizes(memory_, 96);
  expect_ok("tiles", {.block = {96, 1, 1}}, din.address(), sums.address(), scans.address(),
            sizes.address());
  for (size_t i = 0; i < 96; ++i) {
    const auto tile = in.begin() + static_cast<std::ptrdiff_t>(i / 8 * 8);
    EXPECT_EQ(sums[i], std::accumulate(tile, tile + 8, 0));
    EXPECT_EQ(scans[i], std::accumulate(tile, tile + static_cast<std::ptrdiff_t>(i % 8) + 1, 0));
    const auto warp = in.begin() + static_cast<std::ptrdiff_t>(i / 32 * 32);
    const auto count =
        static_cast<int>(std::count_if(warp, warp + 32, [](int v) { return v % 3 == 0; }));
    EXPECT_EQ(sizes[i], in[i] % 3 == 0 ? count * 101 : 0);
  }
}

TEST_F(PtxLibrary, BlockPrimitives) {
  std::vector<int> in(128);
  std::iota(in.begin(), in.end(), -20);
  const DeviceArray<int> din(memory_, in);
  const DeviceArray<int> sum(memory_, 1);
  const DeviceArray<int> scan(memory_, 128);
  const DeviceArray<unsigned> sorted(memory_, 512);
  expect_ok("block_primitives", {.block = {128, 1, 1}}, din.address(), sum.address(),
            scan.address(), sorted.address());
  EXPECT_EQ(sum[0], std::accumulate(in.begin(), in.end(), 0));
  for (size_t i = 0; i < 128; ++i)
    EXPECT_EQ(scan[i], std::accumulate(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(i), 0));
  std::vector<unsigned> keys(512);
  for (unsigned k = 0; k < 512; ++k) keys[k] = k * 2654435761U;
  std::sort(keys.begin(), keys.end());
  for (size_t k = 0; k < 512; ++k) ASSERT_EQ(sorted[k], keys[k]);
}

TEST_F(PtxLibrary, BarriersInMemory) {
  open("barrier.ptx");
  std::vector<int> in(384);
  std::iota(in.begin(), in.end(), 0);
  for (const char* kernel : {"phases", "pipelined"}) {
    const DeviceArray<int> din(memory_, in);
    const DeviceArray<int> out(memory_, 384);
    expect_ok(kernel, {.block = {128, 1, 1}}, din.address(), out.address());
    for (int i = 0; i < 384; ++i)
      ASSERT_EQ(out[static_cast<size_t>(i)], i / 128 * 128 + 127 - i % 128);
  }
}

TEST_F(PtxLibrary, HalfTypes) {
  const std::vector<float> in = {0.5F, 1.25F, -3.0F, 100.0F};
  const DeviceArray<float> din(memory_, in);
  const DeviceArray<float> half(memory_, 4);
  const DeviceArray<float> bfloat(memory_, 4);
  expect_ok("halves", {.block = {4, 1, 1}}, din.address(), half.address(), bfloat.address());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(half[i], in[i] * in[i] + 0.5F, in[i] * in[i] * 0x1p-10F);
    EXPECT_NEAR(bfloat[i], in[i] * (in[i] + 1), std::abs(in[i] * (in[i] + 1)) * 0x1p-7F);
  }
}

TEST_F(PtxLibrary, Mathematics) {
  const std::vector<double> in = {0.1, 0.5, 1.0, 2.5, 7.75, 20.0};
  const DeviceArray<double> din(memory_, in);
  const DeviceArray<double> out(memory_, in.size());
  const DeviceArray<float> single(memory_, in.size());
  expect_ok("mathematics", {.block = {6, 1, 1}}, din.address(), out.address(), single.address());
  for (size_t i = 0; i < in.size(); ++i) {
    const double x = in[i];
    const double expected = std::sin(x) + std::exp(x) * std::pow(x, 1.7) / std::tgamma(x + 1) +
                            std::cbrt(x) + 1 / std::sqrt(x) + std::log1p(x) + std::erf(x);
    EXPECT_NEAR(out[i], expected, std::abs(expected) * 1e-14);
    const auto f = static_cast<float>(x);
    const float s = std::sin(f * 1e6F) + std::pow(f, 2.3F) + std::tanh(f) + std::fmod(f, 0.7F) +
                    1 / f + std::exp(-f);
    EXPECT_NEAR(single[i], s, std::abs(s) * 1e-5F);
  }
}

}  // namespace
}  // namespace rgpu::server::ptx
