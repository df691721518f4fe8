// f32 and f64 arithmetic against the host's: each rounding mode, .ftz, .sat, NaN and signed zeros.
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "server/cuda/emulated/ptx_rounding.h"
#include "tests/server/cuda/ptx_apply.h"

namespace rgpu::server::ptx {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::bit_cast<float>(0x7fffffffU);

std::vector<float> floats() {
  return {0.0F,      -0.0F,  1.0F,   -1.0F, 1.5F,          0.1F,           -0.3F,
          3.14159F,  1e-30F, -1e30F, 1e38F, 3.4028235e38F, 1.1754944e-38F, 1e-39F,
          -1.4e-45F, kInf,   -kInf,  kNan,  16777217.0F,   0.33333334F,    1.0000001F};
}
std::vector<double> doubles() {
  return {0.0,
          -0.0,
          1.0,
          -1.0,
          0.1,
          -0.3,
          3.14159265358979,
          1e-300,
          -1e300,
          1.7e308,
          5e-324,
          -1e-310,
          std::numeric_limits<double>::infinity(),
          9007199254740993.0,
          1.0000000000000002};
}

float one_nan(float x) { return x == x ? x : kNan; }
float flushed(float x) { return std::abs(x) < 1.17549435e-38F ? std::copysign(0.0F, x) : x; }
float clamped(float x) { return x > 0 ? std::min(x, 1.0F) : 0.0F; }

struct Mode {
  const char* name;
  Rounding rounding;
};
const Mode kModes[] = {{"rn", Rounding::kNearest},
                       {"rz", Rounding::kZero},
                       {"rm", Rounding::kDown},
                       {"rp", Rounding::kUp}};

class PtxReal : public PtxInstructionTest {};

TEST_F(PtxReal, SinglePrecisionInEachMode) {
  for (const Mode& mode : kModes) {
    const std::string m = mode.name;
    const auto in_mode = [&mode](auto&& f) {
      return [&mode, f](float a, float b) {
        const RoundingScope scope(mode.rounding);
        return one_nan(f(a, b));
      };
    };
    expect_pairs<float>("add." + m + ".f32 %d, %a, %b;", floats(),
                        in_mode([](float a, float b) { return rounded_add(a, b); }));
    expect_pairs<float>("sub." + m + ".f32 %d, %a, %b;", floats(),
                        in_mode([](float a, float b) { return rounded_add(a, -b); }));
    expect_pairs<float>("mul." + m + ".f32 %d, %a, %b;", floats(),
                        in_mode([](float a, float b) { return rounded_mul(a, b); }));
    expect_pairs<float>("div." + m + ".f32 %d, %a, %b;", floats(),
                        in_mode([](float a, float b) { return rounded_div(a, b); }));
    expect_pairs<float>("fma." + m + ".f32 %d, %a, %b, 0f3DCCCCCD;", floats(),
                        in_mode([](float a, float b) { return rounded_fma(a, b, 0.1F); }));
    expect_pairs<float>("sqrt." + m + ".f32 %d, %a;", floats(),
                        in_mode([](float a, float) { return rounded_sqrt(a); }));
    expect_pairs<float>("rcp." + m + ".f32 %d, %a;", floats(),
                        in_mode([](float a, float) { return rounded_div(1.0F, a); }));
  }
}

TEST_F(PtxReal, DirectionsDiffer) {
  // Against values worked out by hand, so that the host's modes are not what is compared with.
  expect_each<uint32_t, uint32_t>("add.rp.f32 %d, 0f3F800000, 0f33000000;", {0},
                                  [](uint32_t) { return 0x3f800001U; });
  expect_each<uint32_t, uint32_t>("add.rn.f32 %d, 0f3F800000, 0f33000000;", {0},
                                  [](uint32_t) { return 0x3f800000U; });
  expect_each<uint32_t, uint32_t>("add.rm.f32 %d, 0fBF800000, 0fB3000000;", {0},
                                  [](uint32_t) { return 0xbf800001U; });
  expect_each<uint32_t, uint32_t>("add.rz.f32 %d, 0fBF800000, 0fB3000000;", {0},
                                  [](uint32_t) { return 0xbf800000U; });
  expect_each<uint32_t, uint32_t>("div.rp.f32 %d, 0f3F800000, 0f40400000;", {0},
                                  [](uint32_t) { return 0x3eaaaaabU; });
  expect_each<uint32_t, uint32_t>("div.rz.f32 %d, 0f3F800000, 0f40400000;", {0},
                                  [](uint32_t) { return 0x3eaaaaaaU; });
}

TEST_F(PtxReal, DoublePrecisionInEachMode) {
  for (const Mode& mode : kModes) {
    const std::string m = mode.name;
    const auto in_mode = [&mode](auto&& f) {
      return [&mode, f](double a, double b) {
        const RoundingScope scope(mode.rounding);
        return f(a, b);
      };
    };
    expect_pairs<double>("add." + m + ".f64 %d, %a, %b;", doubles(),
                         in_mode([](double a, double b) { return rounded_add(a, b); }));
    expect_pairs<double>("mul." + m + ".f64 %d, %a, %b;", doubles(),
                         in_mode([](double a, double b) { return rounded_mul(a, b); }));
    expect_pairs<double>("div." + m + ".f64 %d, %a, %b;", doubles(),
                         in_mode([](double a, double b) { return rounded_div(a, b); }));
    expect_pairs<double>("fma." + m + ".f64 %d, %a, %b, 0d3FB999999999999A;", doubles(),
                         in_mode([](double a, double b) { return rounded_fma(a, b, 0.1); }));
  }
  expect_each<double>("sqrt.rn.f64 %d, %a;", {0.0, 2.0, 1e-310, 5e300},
                      [](double a) { return std::sqrt(a); });
}

TEST_F(PtxReal, FlushedAndSaturated) {
  expect_pairs<float>("add.ftz.f32 %d, %a, %b;", floats(),
                      [](float a, float b) { return one_nan(flushed(flushed(a) + flushed(b))); });
  expect_pairs<float>("mul.rn.ftz.f32 %d, %a, %b;", floats(),
                      [](float a, float b) { return one_nan(flushed(flushed(a) * flushed(b))); });
  expect_pairs<float>("mul.rz.ftz.f32 %d, %a, %b;", floats(), [](float a, float b) {
    const RoundingScope scope(Rounding::kZero);
    return one_nan(flushed(rounded_mul(flushed(a), flushed(b))));
  });
  expect_pairs<float>("add.sat.f32 %d, %a, %b;", floats(),
                      [](float a, float b) { return clamped(a + b); });
  expect_pairs<float>("fma.rn.ftz.sat.f32 %d, %a, %b, %a;", floats(), [](float a, float b) {
    return clamped(flushed(std::fma(flushed(a), flushed(b), flushed(a))));
  });
}

TEST_F(PtxReal, MinimaAndMaxima) {
  const auto least = [](float a, float b) {
    if (a != a || b != b) return a != a ? one_nan(b) : a;
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  };
  const auto most = [](float a, float b) {
    if (a != a || b != b) return a != a ? one_nan(b) : a;
    return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
  };
  expect_pairs<float>("min.f32 %d, %a, %b;", floats(), least);
  expect_pairs<float>("max.f32 %d, %a, %b;", floats(), most);
  expect_pairs<float>("max.NaN.f32 %d, %a, %b;", floats(),
                      [=](float a, float b) { return a != a || b != b ? kNan : most(a, b); });
  expect_pairs<float>("min.xorsign.abs.f32 %d, %a, %b;", floats(), [=](float a, float b) {
    const float r = least(std::abs(a), std::abs(b));
    return std::copysign(r, std::signbit(a) != std::signbit(b) ? -1.0F : 1.0F);
  });
  expect_pairs<double>("min.f64 %d, %a, %b;", doubles(), [](double a, double b) {
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  });
}

TEST_F(PtxReal, Signs) {
  expect_each<float>("neg.f32 %d, %a;", floats(), [](float a) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(a) ^ 0x80000000);
  });
  expect_each<float>("abs.ftz.f32 %d, %a;", floats(), [](float a) { return flushed(std::abs(a)); });
  expect_each<double>("neg.f64 %d, %a;", doubles(), [](double a) { return -a; });
  expect_pairs<float>("copysign.f32 %d, %a, %b;", floats(),
                      [](float a, float b) { return std::copysign(b, a); });
}

TEST_F(PtxReal, Classes) {
  const auto check = [this](const std::string& what, auto&& f) {
    expect_each<uint32_t>("testp." + what + ".f32 %p1, %a;\nselp.u32 %d, 1, 0, %p1;", floats(),
                          [&](float a) { return uint32_t{f(a)}; });
  };
  check("finite", [](float a) { return std::isfinite(a); });
  check("infinite", [](float a) { return std::isinf(a); });
  check("number", [](float a) { return !std::isnan(a); });
  check("notanumber", [](float a) { return std::isnan(a); });
  check("normal", [](float a) { return std::isnormal(a); });
  check("subnormal", [](float a) { return std::fpclassify(a) == FP_SUBNORMAL; });
}

TEST_F(PtxReal, ComparisonsKnowNan) {
  const auto check = [this](const std::string& compare, auto&& f) {
    expect_pairs<uint32_t>("setp." + compare + ".f32 %p1, %a, %b;\nselp.u32 %d, 1, 0, %p1;",
                           floats(), [&](float a, float b) { return uint32_t{f(a, b)}; });
  };
  const auto unordered = [](float a, float b) { return std::isunordered(a, b); };
  check("eq", [](float a, float b) { return a == b; });
  check("ne", [=](float a, float b) { return !unordered(a, b) && a != b; });
  check("lt", [](float a, float b) { return a < b; });
  check("ge", [](float a, float b) { return a >= b; });
  check("equ", [=](float a, float b) { return unordered(a, b) || a == b; });
  check("neu", [](float a, float b) { return a != b; });
  check("ltu", [=](float a, float b) { return unordered(a, b) || a < b; });
  check("gtu", [=](float a, float b) { return unordered(a, b) || a > b; });
  check("num", [=](float a, float b) { return !unordered(a, b); });
  check("nan", unordered);
  check("lt.ftz", [](float a, float b) { return flushed(a) < flushed(b); });
}

TEST_F(PtxReal, Approximations) {
  const std::vector<float> values = {0.001F, 0.5F, 1.0F, 2.0F, 3.0F, 10.0F, 100.0F, -0.7F, -3.0F};
  const auto check = [&](const std::string& op, auto&& f) {
    const std::vector<float> got = apply<float, float>(op + " %d, %a;", values);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = f(values[i]);
      if (expected != expected) {
        EXPECT_TRUE(got[i] != got[i]) << op << values[i];
      } else {
        EXPECT_NEAR(got[i], expected, std::abs(expected) * 2e-6F + 1e-7F) << op << values[i];
      }
    }
  };
  check("sin.approx.f32", [](float a) { return std::sin(a); });
  check("cos.approx.ftz.f32", [](float a) { return std::cos(a); });
  check("ex2.approx.f32", [](float a) { return std::exp2(a); });
  check("lg2.approx.ftz.f32", [](float a) { return std::log2(a); });
  check("tanh.approx.f32", [](float a) { return std::tanh(a); });
  check("rcp.approx.ftz.f32", [](float a) { return 1 / a; });
  check("rsqrt.approx.f32", [](float a) { return 1 / std::sqrt(a); });
  check("sqrt.approx.ftz.f32", [](float a) { return std::sqrt(a); });
  expect_each<double>("rcp.approx.ftz.f64 %d, %a;", {4.0, 1e-310}, [](double a) {
    return a == 4.0 ? 0.25 : std::numeric_limits<double>::infinity();
  });
  expect_pairs<float>("div.full.f32 %d, %a, %b;", {1.0F, 3.0F, 7.0F},
                      [](float a, float b) { return a / b; });
}

TEST_F(PtxReal, PairsOfSingles) {
  const std::vector<uint64_t> a = {0x3f80000040000000, 0xbf8000007f800000};
  const std::vector<uint64_t> got = apply<uint64_t, uint64_t>("fma.rn.f32x2 %d, %a, %a, %a;", a);
  for (size_t i = 0; i < a.size(); ++i) {
    for (const uint32_t shift : {0U, 32U}) {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(a[i] >> shift));
      EXPECT_EQ(static_cast<uint32_t>(got[i] >> shift),
                std::bit_cast<uint32_t>(one_nan(std::fma(x, x, x))));
    }
  }
}

}  // namespace
}  // namespace rgpu::server::ptx
