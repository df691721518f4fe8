// f16, bf16 and 8-bit floats, and cvt between all types.
#include <bit>
#include <cmath>
#include <limits>

#include "server/cuda/emulated/ptx_rounding.h"
#include "tests/server/cuda/ptx_apply.h"

namespace rgpu::server::ptx {
namespace {

// By a search over all values of the format: slow, and nothing like what is tested.
uint16_t nearest(const Format& format, long double x) {
  if (x != x) return 0x7fff;
  const auto infinity =
      static_cast<uint16_t>(((1U << format.exponent_bits) - 1) << format.mantissa_bits);
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const long double magnitude = std::fabs(x);
  uint32_t low = 0;
  uint32_t high = infinity;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (expand(format, middle) <= static_cast<double>(magnitude) && expand(format, middle) <= magnitude
         ? low
         : high) = middle;
  }
  const long double below = expand(format, low);
  const long double step = below - static_cast<long double>(expand(format, low == 0 ? 0 : low - 1));
  const long double above =
      high == infinity ? below + step : static_cast<long double>(expand(format, high));
  const long double middle = (below + above) / 2;
  const bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

std::vector<uint16_t> bits16() {
  return {0x0000, 0x8000, 0x3c00, 0xbc00, 0x3555, 0x0001, 0x83ff, 0x0400,
          0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3f80, 0xbf80, 0x4049,
          0x7f7f, 0x0080, 0x8001, 0x7f80, 0x2e66, 0x5640, 0x42f7, 0x0b0b};
}

class PtxNarrow : public PtxInstructionTest {
 protected:
  template <typename F>
  void expect_halves(const std::string& body, const Format& format, F&& f) {
    expect_pairs<uint16_t>(body, bits16(), [&](uint16_t a, uint16_t b) {
      return nearest(format, f(static_cast<long double>(expand(format, a)),
                               static_cast<long double>(expand(format, b))));
    });
  }
};

TEST_F(PtxNarrow, ArithmeticRoundsOnce) {
  for (const bool bfloat : {false, true}) {
    const Format& format = bfloat ? kBfloatFormat : kHalfFormat;
    const std::string t = bfloat ? "bf16" : "f16";
    expect_halves("add.rn." + t + " %d, %a, %b;", format,
                  [](long double a, long double b) { return a + b; });
    expect_halves("sub.rn." + t + " %d, %a, %b;", format,
                  [](long double a, long double b) { return a - b; });
    expect_halves("mul.rn." + t + " %d, %a, %b;", format,
                  [](long double a, long double b) { return a * b; });
    // In long double the product of 16-bit floats is exact and its sum almost so.
    expect_halves("fma.rn." + t + " %d, %a, %b, %a;", format,
                  [](long double a, long double b) { return a * b + a; });
    expect_halves("fma.rn." + t + " %d, %a, %a, %b;", format,
                  [](long double a, long double b) { return a * a + b; });
  }
}

TEST_F(PtxNarrow, PackedActsOnEachHalf) {
  const auto [a, b] = pairs<uint32_t>({0x3c004000, 0x0001c500, 0x7c007bff, 0xfbff3555});
  const std::vector<uint32_t> got =
      apply<uint32_t, uint32_t, uint32_t>("fma.rn.f16x2 %d, %a, %b, %b;", a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    for (const uint32_t shift : {0U, 16U}) {
      const long double x = expand(kHalfFormat, a[i] >> shift & 0xffff);
      const long double y = expand(kHalfFormat, b[i] >> shift & 0xffff);
      EXPECT_EQ(got[i] >> shift & 0xffff, nearest(kHalfFormat, x * y + y));
    }
  }
}

TEST_F(PtxNarrow, Variants) {
  const auto number = [](uint16_t x) { return expand(kHalfFormat, x); };
  expect_pairs<uint16_t>("add.sat.f16 %d, %a, %b;", bits16(), [=](uint16_t a, uint16_t b) {
    const double sum = number(a) + number(b);
    return nearest(kHalfFormat, sum > 0 ? std::min(sum, 1.0) : 0.0);
  });
  expect_pairs<uint16_t>("fma.rn.relu.f16 %d, %a, %b, %b;", bits16(), [=](uint16_t a, uint16_t b) {
    const double r = number(a) * number(b) + number(b);
    return r != r ? uint16_t{0x7fff} : nearest(kHalfFormat, r > 0 ? r : 0.0);
  });
  expect_pairs<uint16_t>("mul.ftz.f16 %d, %a, %b;", bits16(), [=](uint16_t a, uint16_t b) {
    const auto flush = [](uint16_t x) {
      return static_cast<uint16_t>((x & 0x7c00) == 0 ? x & 0x8000 : x);
    };
    return flush(nearest(kHalfFormat, number(flush(a)) * number(flush(b))));
  });
  expect_pairs<uint16_t>("max.NaN.f16 %d, %a, %b;", bits16(), [=](uint16_t a, uint16_t b) {
    const double x = number(a);
    const double y = number(b);
    if (x != x || y != y) return uint16_t{0x7fff};
    return x == y ? (a & 0x8000 ? b : a) : x > y ? a : b;
  });
  expect_pairs<uint32_t>("setp.lt.f16 %p1, %a, %b;\nselp.u32 %d, 1, 0, %p1;", bits16(),
                         [=](uint16_t a, uint16_t b) { return uint32_t{number(a) < number(b)}; });
  expect_pairs<uint16_t>("set.gt.f16.f16 %d, %a, %b;", bits16(), [=](uint16_t a, uint16_t b) {
    return static_cast<uint16_t>(number(a) > number(b) ? 0x3c00 : 0);
  });
  expect_each<uint16_t, uint16_t>(
      "ex2.approx.f16 %d, %a;", {0x0000, 0x3c00, 0xc000}, [](uint16_t a) {
        return static_cast<uint16_t>(a == 0 ? 0x3c00 : a == 0x3c00 ? 0x4000 : 0x3400);
      });
}

TEST_F(PtxNarrow, RoundingOfFormats) {
  // Halfway between 1 and the next f16, in each direction.
  const double middle = 1.0 + 0x1p-11;
  EXPECT_EQ(round_to(kHalfFormat, middle, Rounding::kNearest), 0x3c00U);
  EXPECT_EQ(round_to(kHalfFormat, middle, Rounding::kUp), 0x3c01U);
  EXPECT_EQ(round_to(kHalfFormat, middle, Rounding::kAway), 0x3c01U);
  EXPECT_EQ(round_to(kHalfFormat, -middle, Rounding::kUp), 0xbc00U);
  EXPECT_EQ(round_to(kHalfFormat, -middle, Rounding::kDown), 0xbc01U);
  EXPECT_EQ(round_to(kHalfFormat, 65520.0, Rounding::kNearest), 0x7c00U);
  EXPECT_EQ(round_to(kHalfFormat, 65520.0, Rounding::kZero), 0x7bffU);
  EXPECT_EQ(round_to(kHalfFormat, 0x1p-25, Rounding::kNearest), 0U);
  EXPECT_EQ(round_to(kHalfFormat, 0x1.1p-25, Rounding::kNearest), 1U);
  EXPECT_EQ(round_to(kHalfFormat, 1e-300, Rounding::kUp), 1U);
  EXPECT_EQ(round_to(kE4M3Format, 1000.0, Rounding::kNearest, true), 0x7eU);
  EXPECT_EQ(round_to(kE4M3Format, NAN, Rounding::kNearest, true), 0x7fU);
  EXPECT_EQ(round_to(kE5M2Format, 1e9, Rounding::kNearest, false), 0x7cU);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (const Format* format : {&kHalfFormat, &kBfloatFormat}) {
      const double x = expand(*format, bits);
      ASSERT_EQ(round_to(*format, x, Rounding::kNearest), x == x ? bits : 0x7fffU);
    }
  }
}

class PtxConvert : public PtxInstructionTest {};

std::vector<float> reals() {
  return {0.0F,
          -0.0F,
          0.5F,
          -0.5F,
          1.5F,
          2.5F,
          -2.5F,
          0.49999997F,
          126.7F,
          255.5F,
          -128.6F,
          65504.0F,
          65520.0F,
          3e9F,
          -3e9F,
          1e20F,
          -1e20F,
          2147483520.0F,
          1e-40F,
          std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(),
          8388609.0F};
}

template <typename D>
D clamp_integer(double x) {
  if (x != x) return sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << 63) : D{0};
  const auto least = static_cast<long double>(std::numeric_limits<D>::min());
  const auto most = static_cast<long double>(std::numeric_limits<D>::max());
  if (x <= least) return std::numeric_limits<D>::min();
  if (x >= most) return std::numeric_limits<D>::max();
  return static_cast<D>(x);
}

TEST_F(PtxConvert, RealsToIntegers) {
  expect_each<int32_t>("cvt.rzi.s32.f32 %d, %a;", reals(),
                       [](float a) { return clamp_integer<int32_t>(std::trunc(a)); });
  expect_each<int32_t>("cvt.rni.s32.f32 %d, %a;", reals(),
                       [](float a) { return clamp_integer<int32_t>(std::nearbyint(a)); });
  expect_each<int32_t>("cvt.rmi.s32.f32 %d, %a;", reals(),
                       [](float a) { return clamp_integer<int32_t>(std::floor(a)); });
  expect_each<uint32_t>("cvt.rpi.u32.f32 %d, %a;", reals(),
                        [](float a) { return clamp_integer<uint32_t>(std::ceil(a)); });
  expect_each<int64_t>("cvt.rzi.s64.f32 %d, %a;", reals(),
                       [](float a) { return clamp_integer<int64_t>(std::trunc(a)); });
  expect_each<uint64_t>("cvt.rzi.u64.f32 %d, %a;", reals(),
                        [](float a) { return clamp_integer<uint64_t>(std::trunc(a)); });
  expect_each<uint16_t>("cvt.rzi.u16.f32 %d, %a;", reals(),
                        [](float a) { return clamp_integer<uint16_t>(std::trunc(a)); });
  expect_each<uint32_t>("cvt.rzi.u8.f32 %d, %a;", reals(),
                        [](float a) { return uint32_t{clamp_integer<uint8_t>(std::trunc(a))}; });
  expect_each<int32_t>("cvt.rni.s8.f32 %d, %a;", reals(),
                       [](float a) { return int32_t{clamp_integer<int8_t>(std::nearbyint(a))}; });
  expect_each<int32_t>("cvt.rni.ftz.s32.f32 %d, %a;", reals(),
                       [](float a) { return clamp_integer<int32_t>(std::nearbyint(a)); });
  expect_each<int64_t>("cvt.rni.s64.f64 %d, %a;", {0.5, 1.5, -2.5, 1e19, -1e19, 4503599627370497.5},
                       [](double a) { return clamp_integer<int64_t>(std::nearbyint(a)); });
}

TEST_F(PtxConvert, IntegersToReals) {
  const std::vector<uint64_t> wide = {0,
                                      1,
                                      16777217,
                                      0x7fffffff,
                                      0xffffffff,
                                      0x7fffffffffffffff,
                                      0x8000000000000400,
                                      0x8000000000000401,
                                      ~0ULL,
                                      9007199254740993};
  for (const auto& [name, rounding] : {std::pair("rn", Rounding::kNearest),
                                       {"rz", Rounding::kZero},
                                       {"rm", Rounding::kDown},
                                       {"rp", Rounding::kUp}}) {
    const std::string m = name;
    const RoundingScope scope(rounding);
    expect_each<float>("cvt." + m + ".f32.u64 %d, %a;", wide,
                       [](uint64_t a) { return rounded_float(a); });
    expect_each<float>("cvt." + m + ".f32.s64 %d, %a;", wide,
                       [](uint64_t a) { return rounded_float(static_cast<int64_t>(a)); });
    expect_each<double>("cvt." + m + ".f64.u64 %d, %a;", wide,
                        [](uint64_t a) { return rounded_double(a); });
    expect_each<float>("cvt.u32.u64 %x1, %a;\ncvt." + m + ".f32.s32 %d, %x1;", wide,
                       [](uint64_t a) { return rounded_float(int64_t{static_cast<int32_t>(a)}); });
  }
  expect_each<double>("cvt.rn.f64.s32 %d, %a;", {-5, 7, INT32_MIN},
                      [](int32_t a) { return double(a); });
  expect_each<uint16_t>("cvt.rn.f16.s32 %d, %a;", {0, 1, -3, 2049, 65519, 65520, -70000},
                        [](int32_t a) { return nearest(kHalfFormat, a); });
  expect_each<uint16_t>("cvt.rn.bf16.u64 %d, %a;", wide,
                        [](uint64_t a) { return nearest(kBfloatFormat, a); });
}

TEST_F(PtxConvert, IntegersToIntegers) {
  const std::vector<int32_t> v = {0,   1,     -1,    127,    128,       -129,     255,
                                  256, 65535, 65536, -40000, INT32_MAX, INT32_MIN};
  expect_each<int64_t>("cvt.s64.s32 %d, %a;", v, [](int32_t a) { return int64_t{a}; });
  expect_each<uint64_t>("cvt.u64.u32 %d, %a;", v,
                        [](int32_t a) { return uint64_t{static_cast<uint32_t>(a)}; });
  expect_each<int32_t>("cvt.s32.s8 %d, %a;", v,
                       [](int32_t a) { return int32_t{static_cast<int8_t>(a)}; });
  expect_each<uint32_t>("cvt.u32.u16 %d, %a;", v,
                        [](int32_t a) { return uint32_t{static_cast<uint16_t>(a)}; });
  expect_each<int32_t>("cvt.sat.s8.s32 %d, %a;", v,
                       [](int32_t a) { return std::clamp(a, -128, 127); });
  expect_each<uint32_t>("cvt.sat.u16.s32 %d, %a;", v,
                        [](int32_t a) { return static_cast<uint32_t>(std::clamp(a, 0, 65535)); });
  expect_each<uint32_t>("cvt.sat.u32.s32 %d, %a;", v,
                        [](int32_t a) { return static_cast<uint32_t>(std::max(a, 0)); });
  expect_each<int32_t>(
      "cvt.s64.s32 %w1, %a;\nmul.lo.s64 %w1, %w1, 3;\ncvt.sat.s32.s64 %d, %w1;", v, [](int32_t a) {
        return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} * 3, INT32_MIN, INT32_MAX));
      });
}

TEST_F(PtxConvert, RealsToReals) {
  expect_each<double>("cvt.f64.f32 %d, %a;", {1.1F, -0.0F, 1e-40F, 3e38F},
                      [](float a) { return double{a}; });
  const std::vector<double> wide = {1.0 + 0x1p-24, 0.1, -0.1, 1e-42, 1e39, 16777217.0, -1e-50};
  for (const auto& [name, rounding] : {std::pair("rn", Rounding::kNearest),
                                       {"rz", Rounding::kZero},
                                       {"rm", Rounding::kDown},
                                       {"rp", Rounding::kUp}}) {
    const RoundingScope scope(rounding);
    expect_each<float>(std::string("cvt.") + name + ".f32.f64 %d, %a;", wide,
                       [](double a) { return rounded_float(a); });
    expect_each<uint16_t>(
        std::string("cvt.") + name + ".f16.f64 %d, %a;", wide,
        [&, r = rounding](double a) { return static_cast<uint16_t>(round_to(kHalfFormat, a, r)); });
  }
  expect_each<float>("cvt.rni.f32.f32 %d, %a;", {0.5F, 1.5F, -2.5F, 1e10F},
                     [](float a) { return std::nearbyint(a); });
  expect_each<float>("cvt.rmi.f32.f32 %d, %a;", {0.5F, -1.5F, 7.0F},
                     [](float a) { return std::floor(a); });
  expect_each<float>("cvt.sat.f32.f32 %d, %a;", {0.5F, -1.5F, 7.0F, NAN},
                     [](float a) { return a > 0 ? std::min(a, 1.0F) : 0.0F; });
  expect_each<uint16_t>("cvt.rn.f16.f32 %d, %a;", reals(),
                        [](float a) { return nearest(kHalfFormat, a); });
  expect_each<uint16_t>("cvt.rn.bf16.f32 %d, %a;", reals(),
                        [](float a) { return nearest(kBfloatFormat, a); });
  expect_each<float>("cvt.f32.f16 %d, %a;", bits16(), [](uint16_t a) {
    const auto x = static_cast<float>(expand(kHalfFormat, a));
    return x == x ? x : std::bit_cast<float>(0x7fffffffU);
  });
}

TEST_F(PtxConvert, PackedAndBytes) {
  expect_pairs<uint32_t>("cvt.rn.f16x2.f32 %d, %a, %b;", reals(), [](float a, float b) {
    return uint32_t{nearest(kHalfFormat, a)} << 16 | nearest(kHalfFormat, b);
  });
  expect_pairs<uint32_t>("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", {1.1F, -2.2F, 3.3F},
                         [](float a, float b) {
                           return uint32_t{nearest(kBfloatFormat, std::max(a, 0.0F))} << 16 |
                                  nearest(kBfloatFormat, std::max(b, 0.0F));
                         });
  expect_pairs<uint16_t>(
      "cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", {0.0F, 1.0F, -448.0F, 1000.0F, 0.0625F},
      [](float a, float b) {
        const auto code = [](float x) {
          return x == 0 ? 0U : x == 1 ? 0x38U : x == -448 ? 0xfeU : x == 1000 ? 0x7eU : 0x18U;
        };
        return static_cast<uint16_t>(code(a) << 8 | code(b));
      });
  expect_each<uint32_t>("cvt.rn.f16x2.e5m2x2 %d, %a;", std::vector<uint16_t>{0x3c40, 0xbc7c},
                        [](uint16_t a) { return a == 0x3c40 ? 0x3c004000U : 0xbc007c00U; });
  expect_each<uint32_t>("cvt.rna.tf32.f32 %d, %a;", {1.0F, 1.0F + 0x1p-11F, -3.3F}, [](float a) {
    const auto bits = std::bit_cast<uint32_t>(a);
    return (bits + 0x1000) & 0xffffe000;
  });
}

}  // namespace
}  // namespace rgpu::server::ptx
