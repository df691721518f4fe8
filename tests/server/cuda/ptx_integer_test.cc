// Integer arithmetic and bit operations against the host's.
#include <bit>
#include <limits>

#include "tests/server/cuda/ptx_apply.h"

namespace rgpu::server::ptx {
namespace {

class PtxInteger : public PtxInstructionTest {
 protected:
  template <typename T>
  static std::vector<T> edges() {
    using L = std::numeric_limits<T>;
    return {T{0},
            T{1},
            T{2},
            T{3},
            T{7},
            static_cast<T>(L::max() / 3),
            static_cast<T>(L::max() - 1),
            L::max(),
            L::min(),
            static_cast<T>(L::min() + 1),
            static_cast<T>(L::max() / 2 + 1),
            static_cast<T>(~T{0}),
            static_cast<T>(0x1234567890abcdefULL),
            static_cast<T>(0xfedcba9876543210ULL)};
  }
  template <typename T>
  static std::string name() {
    return std::string(std::is_signed_v<T> ? "s" : "u") + std::to_string(8 * sizeof(T));
  }
  template <typename T>
  void arithmetic();
  template <typename T, typename W>
  void wide();
};

__extension__ using Int128 = __int128;

template <typename T>
void PtxInteger::arithmetic() {
  using U = std::make_unsigned_t<T>;
  const std::string t = name<T>();
  const std::vector<T> v = edges<T>();
  expect_pairs<T>("add." + t + " %d, %a, %b;", v,
                  [](T a, T b) { return static_cast<T>(static_cast<U>(U(a) + U(b))); });
  expect_pairs<T>("sub." + t + " %d, %a, %b;", v,
                  [](T a, T b) { return static_cast<T>(static_cast<U>(U(a) - U(b))); });
  expect_pairs<T>("mul.lo." + t + " %d, %a, %b;", v,
                  [](T a, T b) { return static_cast<T>(static_cast<Int128>(a) * b); });
  expect_pairs<T>("mul.hi." + t + " %d, %a, %b;", v, [](T a, T b) {
    if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
      __extension__ using Unsigned128 = unsigned __int128;
      return static_cast<T>(static_cast<Unsigned128>(a) * b >> 64);
    } else {
      return static_cast<T>(static_cast<Int128>(a) * b >> (8 * sizeof(T)));
    }
  });
  expect_pairs<T>("mad.lo." + t + " %d, %a, %b, 77;", v,
                  [](T a, T b) { return static_cast<T>(static_cast<Int128>(a) * b + 77); });
  expect_pairs<T>("min." + t + " %d, %a, %b;", v, [](T a, T b) { return std::min(a, b); });
  expect_pairs<T>("max." + t + " %d, %a, %b;", v, [](T a, T b) { return std::max(a, b); });
  expect_pairs<T>("sad." + t + " %d, %a, %b, 5;", v, [](T a, T b) {
    const Int128 difference = static_cast<Int128>(a) - b;
    return static_cast<T>((difference < 0 ? -difference : difference) + 5);
  });
  expect_pairs<T>("div." + t + " %d, %a, %b;", v, [](T a, T b) {
    return b == 0 ? static_cast<T>(~T{0}) : static_cast<T>(static_cast<Int128>(a) / b);
  });
  expect_pairs<T>("rem." + t + " %d, %a, %b;", v,
                  [](T a, T b) { return b == 0 ? a : static_cast<T>(static_cast<Int128>(a) % b); });
  expect_pairs<T>("setp.lt." + t + " %p1, %a, %b;\nselp.b" + t.substr(1) + " %d, %a, %b, %p1;", v,
                  [](T a, T b) { return a < b ? a : b; });
  if constexpr (std::is_signed_v<T>) {
    expect_each<T>("abs." + t + " %d, %a;", v,
                   [](T a) { return a < 0 ? static_cast<T>(U{0} - U(a)) : a; });
    expect_each<T>("neg." + t + " %d, %a;", v, [](T a) { return static_cast<T>(U{0} - U(a)); });
  }
}

template <typename T, typename W>
void PtxInteger::wide() {
  const std::string t = name<T>();
  expect_pairs<W>("mul.wide." + t + " %d, %a, %b;", edges<T>(),
                  [](T a, T b) { return static_cast<W>(static_cast<W>(a) * static_cast<W>(b)); });
  expect_pairs<W>("mad.wide." + t + " %d, %a, %b, 9;", edges<T>(), [](T a, T b) {
    return static_cast<W>(static_cast<std::make_unsigned_t<W>>(static_cast<Int128>(a) * b) + 9U);
  });
}

TEST_F(PtxInteger, Arithmetic) {
  arithmetic<uint16_t>();
  arithmetic<int16_t>();
  arithmetic<uint32_t>();
  arithmetic<int32_t>();
  arithmetic<uint64_t>();
  arithmetic<int64_t>();
}

TEST_F(PtxInteger, WideProducts) {
  wide<uint16_t, uint32_t>();
  wide<int16_t, int32_t>();
  wide<uint32_t, uint64_t>();
  wide<int32_t, int64_t>();
}

TEST_F(PtxInteger, Saturation) {
  const auto clamp = [](int64_t x) {
    return static_cast<int32_t>(std::clamp<int64_t>(x, INT32_MIN, INT32_MAX));
  };
  expect_pairs<int32_t>("add.sat.s32 %d, %a, %b;", edges<int32_t>(),
                        [=](int32_t a, int32_t b) { return clamp(int64_t{a} + b); });
  expect_pairs<int32_t>("sub.sat.s32 %d, %a, %b;", edges<int32_t>(),
                        [=](int32_t a, int32_t b) { return clamp(int64_t{a} - b); });
  expect_pairs<int32_t>(
      "mad.hi.sat.s32 %d, %a, %b, 2147483000;", edges<int32_t>(),
      [=](int32_t a, int32_t b) { return clamp((int64_t{a} * b >> 32) + 2147483000); });
}

TEST_F(PtxInteger, CarriesRunThrough) {
  // 64-bit sums and products out of 32-bit halves.
  const std::string split = "mov.b64 {%x0, %x1}, %a;\nmov.b64 {%x2, %x3}, %b;\n";
  expect_pairs<uint64_t>(
      split + "add.cc.u32 %x4, %x0, %x2;\naddc.u32 %x5, %x1, %x3;\nmov.b64 %d, {%x4, %x5};",
      edges<uint64_t>(), [](uint64_t a, uint64_t b) { return a + b; });
  expect_pairs<uint64_t>(
      split + "sub.cc.u32 %x4, %x0, %x2;\nsubc.u32 %x5, %x1, %x3;\nmov.b64 %d, {%x4, %x5};",
      edges<uint64_t>(), [](uint64_t a, uint64_t b) { return a - b; });
  expect_pairs<uint64_t>(split +
                             "mul.lo.u32 %x4, %x0, %x2;\nmul.hi.u32 %x5, %x0, %x2;\n"
                             "mad.lo.cc.u32 %x5, %x0, %x3, %x5;\nmadc.hi.u32 %x6, %x0, %x3, 0;\n"
                             "mad.lo.u32 %x5, %x1, %x2, %x5;\nmov.b64 %d, {%x4, %x5};",
                         edges<uint64_t>(), [](uint64_t a, uint64_t b) { return a * b; });
  // The carry itself.
  expect_pairs<uint32_t>("add.cc.u32 %x1, %a, %b;\naddc.u32 %d, 0, 0;", edges<uint32_t>(),
                         [](uint32_t a, uint32_t b) { return uint32_t{a + b < a}; });
  expect_pairs<uint64_t>("add.cc.u64 %w1, %a, %b;\naddc.u64 %d, 0, 0;", edges<uint64_t>(),
                         [](uint64_t a, uint64_t b) { return uint64_t{a + b < a}; });
}

TEST_F(PtxInteger, Products24) {
  const auto low = [](int32_t x) {
    return int64_t{static_cast<int32_t>(static_cast<uint32_t>(x) << 8) >> 8};
  };
  const auto ulow = [](uint32_t x) { return uint64_t{x & 0xffffff}; };
  expect_pairs<int32_t>("mul24.lo.s32 %d, %a, %b;", edges<int32_t>(), [=](int32_t a, int32_t b) {
    return static_cast<int32_t>(low(a) * low(b));
  });
  expect_pairs<int32_t>("mul24.hi.s32 %d, %a, %b;", edges<int32_t>(), [=](int32_t a, int32_t b) {
    return static_cast<int32_t>(low(a) * low(b) >> 16);
  });
  expect_pairs<uint32_t>(
      "mad24.lo.u32 %d, %a, %b, 3;", edges<uint32_t>(),
      [=](uint32_t a, uint32_t b) { return static_cast<uint32_t>(ulow(a) * ulow(b)) + 3; });
  expect_pairs<uint32_t>(
      "mul24.hi.u32 %d, %a, %b;", edges<uint32_t>(),
      [=](uint32_t a, uint32_t b) { return static_cast<uint32_t>(ulow(a) * ulow(b) >> 16); });
}

TEST_F(PtxInteger, Logic) {
  const std::vector<uint32_t> v = edges<uint32_t>();
  expect_pairs<uint32_t>("and.b32 %d, %a, %b;", v, [](uint32_t a, uint32_t b) { return a & b; });
  expect_pairs<uint32_t>("or.b32 %d, %a, %b;", v, [](uint32_t a, uint32_t b) { return a | b; });
  expect_pairs<uint32_t>("xor.b32 %d, %a, %b;", v, [](uint32_t a, uint32_t b) { return a ^ b; });
  expect_pairs<uint64_t>("xor.b64 %d, %a, %b;", edges<uint64_t>(),
                         [](uint64_t a, uint64_t b) { return a ^ b; });
  expect_each<uint16_t>("not.b16 %d, %a;", edges<uint16_t>(),
                        [](uint16_t a) { return static_cast<uint16_t>(~a); });
  expect_each<uint32_t>("cnot.b32 %d, %a;", v, [](uint32_t a) { return uint32_t{a == 0}; });
  for (uint32_t table = 0; table < 256; table += 37) {
    expect_pairs<uint32_t>("lop3.b32 %d, %a, %b, 0x33cc55aa, " + std::to_string(table) + ";", v,
                           [=](uint32_t a, uint32_t b) {
                             uint32_t r = 0;
                             for (uint32_t i = 0; i < 32; ++i) {
                               const uint32_t k = ((a >> i) & 1) << 2 | ((b >> i) & 1) << 1 |
                                                  ((0x33cc55aaU >> i) & 1);
                               r |= ((table >> k) & 1) << i;
                             }
                             return r;
                           });
  }
  expect_pairs<uint32_t>(
      "setp.lt.u32 %p1, %a, 100;\nsetp.gt.u32 %p2, %b, 5;\nxor.pred %p3, %p1, %p2;\nnot.pred %p4, "
      "%p3;\nselp.b32 %d, 1, 0, %p4;",
      v, [](uint32_t a, uint32_t b) { return uint32_t{(a < 100) == (b > 5)}; });
}

TEST_F(PtxInteger, Shifts) {
  const auto [a, n] = pairs<uint32_t>({0, 1, 5, 31, 32, 33, 63, 64, 255, 0x80000000, 0xdeadbeef});
  const auto check = [&, a = a, n = n](const char* body, auto&& f) {
    const std::vector<uint32_t> got = apply<uint32_t, uint32_t, uint32_t>(body, a, n);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(got[i], f(a[i], n[i])) << body << a[i] << " " << n[i];
  };
  check("shl.b32 %d, %a, %b;", [](uint32_t x, uint32_t s) { return s > 31 ? 0 : x << s; });
  check("shr.u32 %d, %a, %b;", [](uint32_t x, uint32_t s) { return s > 31 ? 0 : x >> s; });
  check("shr.s32 %d, %a, %b;", [](uint32_t x, uint32_t s) {
    return static_cast<uint32_t>(static_cast<int32_t>(x) >> std::min(s, 31U));
  });
  check("shf.l.wrap.b32 %d, 0x12345678, %a, %b;", [](uint32_t x, uint32_t s) {
    const uint64_t both = uint64_t{x} << 32 | 0x12345678;
    return static_cast<uint32_t>(both << (s & 31) >> 32);
  });
  check("shf.r.clamp.b32 %d, %a, 0x12345678, %b;", [](uint32_t x, uint32_t s) {
    return static_cast<uint32_t>((uint64_t{0x12345678} << 32 | x) >> std::min(s, 32U));
  });
  check("shf.l.clamp.b32 %d, 0x12345678, %a, %b;", [](uint32_t x, uint32_t s) {
    return s >= 32 ? 0x12345678
                   : static_cast<uint32_t>((uint64_t{x} << 32 | 0x12345678) << s >> 32);
  });
}

TEST_F(PtxInteger, BitFields) {
  const std::vector<uint32_t> positions = {0, 1, 4, 15, 31, 32, 40};
  for (const uint32_t length : {0U, 1U, 5U, 16U, 31U, 32U, 64U}) {
    for (const uint32_t position : positions) {
      const std::string at = std::to_string(position) + ", " + std::to_string(length) + ";";
      const uint64_t mask = (length >= 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1);
      expect_each<uint32_t>("bfe.u32 %d, %a, " + at, edges<uint32_t>(), [=](uint32_t a) {
        return static_cast<uint32_t>(uint64_t{a} >> position & mask);
      });
      expect_each<int32_t>("bfe.s32 %d, %a, " + at, edges<int32_t>(), [=](int32_t a) {
        if (length == 0) return 0;
        const int64_t wide = a;
        const int64_t field = wide >> std::min(position, 63U);
        const uint32_t keep = std::min(length, 64 - position);
        return static_cast<int32_t>(
            static_cast<int64_t>(static_cast<uint64_t>(field) << (64 - keep)) >> (64 - keep));
      });
      expect_pairs<uint32_t, uint32_t>(
          "bfi.b32 %d, %a, %b, " + at, {0, 0xffffffff, 0x12345678, 0x80000001},
          [=](uint32_t a, uint32_t b) {
            const auto m = static_cast<uint32_t>(std::min<uint64_t>(mask, 0xffffffff) << position);
            const auto f = static_cast<uint32_t>(uint64_t{a} << position);
            return (b & ~m) | (f & m);
          });
    }
  }
}

TEST_F(PtxInteger, CountingAndFinding) {
  const std::vector<uint32_t> v = edges<uint32_t>();
  expect_each<uint32_t>("popc.b32 %d, %a;", v,
                        [](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  expect_each<uint32_t>("clz.b32 %d, %a;", v,
                        [](uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); });
  expect_each<uint32_t>("popc.b64 %d, %a;", edges<uint64_t>(),
                        [](uint64_t a) { return static_cast<uint32_t>(std::popcount(a)); });
  expect_each<uint32_t>("clz.b64 %d, %a;", edges<uint64_t>(),
                        [](uint64_t a) { return static_cast<uint32_t>(std::countl_zero(a)); });
  expect_each<uint32_t>("bfind.u32 %d, %a;", v, [](uint32_t a) {
    return 31U - static_cast<uint32_t>(std::countl_zero(a));
  });
  expect_each<uint32_t>("bfind.shiftamt.u32 %d, %a;", v, [](uint32_t a) {
    return a == 0 ? ~0U : static_cast<uint32_t>(std::countl_zero(a));
  });
  expect_each<uint32_t>("bfind.s64 %d, %a;", edges<int64_t>(), [](int64_t a) {
    return 63U - static_cast<uint32_t>(std::countl_zero(static_cast<uint64_t>(a < 0 ? ~a : a)));
  });
  expect_each<uint32_t>("brev.b32 %d, %a;", v, [](uint32_t a) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  // The third set bit above position 4, the second below 20.
  expect_each<uint32_t, uint32_t>("fns.b32 %d, %a, 4, 3;", {0x0000ff00, 0xffffffff, 0x00000110, 0},
                                  [](uint32_t a) {
                                    return a == 0xff00 ? 10U : a == ~0U ? 6U : ~0U;
                                  });
  expect_each<uint32_t, uint32_t>("fns.b32 %d, %a, 20, -2;", {0x0000ff00, 0xffffffff},
                                  [](uint32_t a) { return a == 0xff00 ? 14U : 19U; });
  expect_pairs<uint32_t, uint32_t>("bmsk.clamp.b32 %d, %a, %b;", {0, 1, 7, 31, 32, 50},
                                   [](uint32_t a, uint32_t b) {
                                     uint32_t r = 0;
                                     for (uint32_t i = 0; i < 32; ++i)
                                       r |= (i >= a && i < uint64_t{a} + b ? 1U : 0U) << i;
                                     return r;
                                   });
  expect_each<int32_t>("szext.wrap.s32 %d, %a, 8;", edges<int32_t>(),
                       [](int32_t a) { return int32_t{static_cast<int8_t>(a)}; });
}

TEST_F(PtxInteger, Bytes) {
  const std::vector<uint32_t> v = edges<uint32_t>();
  expect_pairs<uint32_t>("prmt.b32 %d, %a, %b, 0x1f72;", v, [](uint32_t a, uint32_t b) {
    const uint64_t both = uint64_t{b} << 32 | a;
    const auto byte = [=](uint32_t k) { return static_cast<uint32_t>(both >> 8 * k & 0xff); };
    return byte(2) | byte(7) << 8 | (byte(7) > 127 ? 0xff0000U : 0U) | byte(1) << 24;
  });
  expect_pairs<uint32_t>("prmt.b32.f4e %d, %a, %b, 3;", v, [](uint32_t a, uint32_t b) {
    return static_cast<uint32_t>((uint64_t{b} << 32 | a) >> 24);
  });
  expect_pairs<uint32_t>("prmt.b32.rc16 %d, %a, %b, 1;", v,
                         [](uint32_t a, uint32_t) { return a >> 16 | (a & 0xffff0000); });
  expect_pairs<uint32_t>("dp4a.s32.u32 %d, %a, %b, 100;", v, [](uint32_t a, uint32_t b) {
    int32_t sum = 100;
    for (uint32_t k = 0; k < 32; k += 8)
      sum += static_cast<int8_t>(a >> k) * static_cast<uint8_t>(b >> k);
    return static_cast<uint32_t>(sum);
  });
  expect_pairs<uint32_t>("dp2a.hi.s32.s32 %d, %a, %b, 100;", v, [](uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(100 + static_cast<int16_t>(a) * static_cast<int8_t>(b >> 16) +
                                 static_cast<int16_t>(a >> 16) * static_cast<int8_t>(b >> 24));
  });
  expect_pairs<uint32_t>("vabsdiff4.u32.u32.u32.add %d, %a, %b, 7;", v, [](uint32_t a, uint32_t b) {
    uint32_t sum = 7;
    for (uint32_t k = 0; k < 32; k += 8)
      sum += static_cast<uint32_t>(
          std::abs(static_cast<uint8_t>(a >> k) - static_cast<uint8_t>(b >> k)));
    return sum;
  });
  expect_pairs<uint32_t>("min.s16x2 %d, %a, %b;", v, [](uint32_t a, uint32_t b) {
    const auto low =
        static_cast<uint16_t>(std::min(static_cast<int16_t>(a), static_cast<int16_t>(b)));
    const auto high = static_cast<uint16_t>(
        std::min(static_cast<int16_t>(a >> 16), static_cast<int16_t>(b >> 16)));
    return uint32_t{high} << 16 | low;
  });
}

TEST_F(PtxInteger, Comparisons) {
  const std::vector<int32_t> v = edges<int32_t>();
  const auto check = [&](const std::string& compare, auto&& f) {
    expect_pairs<uint32_t>("setp." + compare + " %p1, %a, %b;\nselp.u32 %d, 1, 0, %p1;", v,
                           [&](int32_t a, int32_t b) { return uint32_t{f(a, b)}; });
  };
  check("eq.s32", [](int32_t a, int32_t b) { return a == b; });
  check("ne.s32", [](int32_t a, int32_t b) { return a != b; });
  check("le.s32", [](int32_t a, int32_t b) { return a <= b; });
  check("ge.s32", [](int32_t a, int32_t b) { return a >= b; });
  check("lo.u32",
        [](int32_t a, int32_t b) { return static_cast<uint32_t>(a) < static_cast<uint32_t>(b); });
  check("hs.u32",
        [](int32_t a, int32_t b) { return static_cast<uint32_t>(a) >= static_cast<uint32_t>(b); });
  check("gt.s16 %p2, 1, 2;\nsetp.gt.s32", [](int32_t a, int32_t b) { return a > b; });
  expect_pairs<uint32_t>(
      "setp.gt.s32 %p3, %a, 0;\nsetp.lt.and.s32 %p1|%p2, %a, %b, !%p3;\nselp.u32 %x1, 1, 0, "
      "%p1;\nselp.u32 %x2, 2, 0, %p2;\nadd.u32 %d, %x1, %x2;",
      v, [](int32_t a, int32_t b) { return a > 0   ? 0U
                                           : a < b ? 1U
                                                   : 2U; });
  expect_pairs<uint32_t>("set.lt.u32.s32 %d, %a, %b;", v,
                         [](int32_t a, int32_t b) { return a < b ? ~0U : 0U; });
  expect_pairs<float>("set.lt.f32.s32 %d, %a, %b;", v,
                      [](int32_t a, int32_t b) { return a < b ? 1.0F : 0.0F; });
  expect_pairs<int32_t>("slct.s32.s32 %d, %a, %b, %a;", v,
                        [](int32_t a, int32_t b) { return a >= 0 ? a : b; });
}

}  // namespace
}  // namespace rgpu::server::ptx
