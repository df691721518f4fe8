// Handlers of f16 and bf16 arithmetic, one value a lane or two.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_narrow.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

// Instruction::option
constexpr uint8_t kFtz = 1;
constexpr uint8_t kSaturate = 2;
constexpr uint8_t kRelu = 4;
constexpr uint8_t kNanWins = 8;
constexpr uint8_t kXorsign = 16;

template <typename H>
uint16_t finish(uint16_t bits, uint8_t option) {
  if ((option & kFtz) != 0 && (bits & H::kExponent) == 0) bits &= 0x8000;
  if ((option & (kSaturate | kRelu)) == 0) return bits;
  const bool is_nan = (bits & 0x7fff) > H::kExponent;
  if ((option & kSaturate) != 0) {
    if (is_nan || (bits & 0x8000) != 0) return 0;
    const uint16_t one = H::from_float(1.0F);
    return bits > one ? one : bits;
  }
  return is_nan ? uint16_t{0x7fff} : (bits & 0x8000) != 0 ? uint16_t{0} : bits;
}

template <typename H>
uint16_t begin(uint16_t bits, uint8_t option) {
  return (option & kFtz) != 0 && (bits & H::kExponent) == 0 ? bits & 0x8000 : bits;
}

// Single precision has enough digits for one rounding more, but for bf16's range no spare exponent:
// tiny results are rounded from double.
template <typename H>
uint16_t round_product(float a, float b) {
  const float product = a * b;
  if (std::is_same_v<H, Bfloat16> && std::abs(product) < 0x1.0p-110F) {
    return static_cast<uint16_t>(round_to(H::kFormat, double{a} * double{b}, Rounding::kNearest));
  }
  return H::from_float(product);
}

struct Add {
  template <typename H>
  static uint16_t apply(float a, float b) {
    return H::from_float(a + b);
  }
};
struct Sub {
  template <typename H>
  static uint16_t apply(float a, float b) {
    return H::from_float(a - b);
  }
};
struct Mul {
  template <typename H>
  static uint16_t apply(float a, float b) {
    return round_product<H>(a, b);
  }
};
struct Fma {
  template <typename H>
  static uint16_t apply(float a, float b, float c) {
    const double product = double{a} * double{b};  // Exact.
    const auto high = static_cast<float>(product);
    // The product is exact in single precision and so is the error of the sum: rounded to odd,
    // then once more.
    if (std::abs(high) > 0x1.0p-100F && std::abs(high) < 0x1.0p+100F && std::abs(c) < 0x1.0p+100F) {
      const float sum = high + c;
      const float c_part = sum - high;
      const float error = (high - (sum - c_part)) + (c - c_part);
      auto bits = std::bit_cast<uint32_t>(sum);
      if (error != 0 && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1U : ~0U;
      return H::from_float(std::bit_cast<float>(bits));
    }
    return static_cast<uint16_t>(
        round_to(H::kFormat, add_to_odd(product, double{c}), Rounding::kNearest));
  }
};
struct Ex2 {
  static float apply(float a) { return std::exp2(a); }
};
struct Tanh {
  static float apply(float a) { return std::tanh(a); }
};
struct Sin {
  static float apply(float a) { return std::sin(a); }
};
struct Cos {
  static float apply(float a) { return std::cos(a); }
};
struct Rcp {
  static float apply(float a) { return 1.0F / a; }
};
struct Sqrt {
  static float apply(float a) { return std::sqrt(a); }
};
struct Rsqrt {
  static float apply(float a) { return 1.0F / std::sqrt(a); }
};
struct Lg2 {
  static float apply(float a) { return std::log2(a); }
};

template <typename H, uint32_t N, typename F>
void unary(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = N * lane; i < N * lane + N; ++i) {
      d[i] = finish<H>(H::from_float(F::apply(H::to_float(begin<H>(a[i], option)))), option);
    }
  });
}

template <typename H, uint32_t N, typename F>
void binary(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  const uint16_t* b = context.row<uint16_t>(in.b);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = N * lane; i < N * lane + N; ++i) {
      d[i] = finish<H>(F::template apply<H>(H::to_float(begin<H>(a[i], option)),
                                            H::to_float(begin<H>(b[i], option))),
                       option);
    }
  });
}

template <typename H, uint32_t N>
void fused(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  const uint16_t* b = context.row<uint16_t>(in.b);
  const uint16_t* c = context.row<uint16_t>(in.c);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = N * lane; i < N * lane + N; ++i) {
      d[i] = finish<H>(
          Fma::apply<H>(H::to_float(begin<H>(a[i], option)), H::to_float(begin<H>(b[i], option)),
                        H::to_float(begin<H>(c[i], option))),
          option);
    }
  });
}

template <typename H, uint32_t N, bool Max>
void minimum(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  const uint16_t* b = context.row<uint16_t>(in.b);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = N * lane; i < N * lane + N; ++i) {
      uint16_t x = begin<H>(a[i], option);
      uint16_t y = begin<H>(b[i], option);
      const uint16_t sign = (option & kXorsign) != 0 ? (x ^ y) & 0x8000 : 0;
      if ((option & kXorsign) != 0) {
        x &= 0x7fff;
        y &= 0x7fff;
      }
      const bool x_nan = (x & 0x7fff) > H::kExponent;
      const bool y_nan = (y & 0x7fff) > H::kExponent;
      uint16_t r = 0x7fff;
      if (!x_nan && !y_nan) {
        // Ordered as integers once negative values are turned over: -0 before +0.
        const auto order = [](uint16_t v) {
          return (v & 0x8000) != 0 ? -1 - (v & 0x7fff) : int32_t{v};
        };
        r = (order(x) < order(y)) != Max ? x : y;
      } else if ((option & kNanWins) == 0 && !(x_nan && y_nan)) {
        r = x_nan ? y : x;
      }
      d[i] = static_cast<uint16_t>(finish<H>(r, option & ~kFtz) | sign);
    }
  });
}

template <typename H, uint32_t N, bool Negate>
void sign(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = N * lane; i < N * lane + N; ++i) {
      const uint16_t x = begin<H>(a[i], option);
      d[i] = static_cast<uint16_t>(Negate ? x ^ 0x8000 : x & 0x7fff);
    }
  });
}

template <typename H, uint32_t N>
Handler pick(const Shape& s) {
  switch (s.op) {
    case Op::kAdd:
      return binary<H, N, Add>;
    case Op::kSub:
      return binary<H, N, Sub>;
    case Op::kMul:
      return binary<H, N, Mul>;
    case Op::kFma:
    case Op::kMad:
      return fused<H, N>;
    case Op::kMin:
      return minimum<H, N, false>;
    case Op::kMax:
      return minimum<H, N, true>;
    case Op::kAbs:
      return sign<H, N, false>;
    case Op::kNeg:
      return sign<H, N, true>;
    case Op::kEx2:
      return unary<H, N, Ex2>;
    case Op::kTanh:
      return unary<H, N, Tanh>;
    case Op::kSin:
      return unary<H, N, Sin>;
    case Op::kCos:
      return unary<H, N, Cos>;
    case Op::kLg2:
      return unary<H, N, Lg2>;
    case Op::kRcp:
      return unary<H, N, Rcp>;
    case Op::kSqrt:
      return unary<H, N, Sqrt>;
    case Op::kRsqrt:
      return unary<H, N, Rsqrt>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler half_handler(const Shape& s) {
  if (s.rounding != Rounding::kNone && s.rounding != Rounding::kNearest) return nullptr;
  switch (s.type) {
    case Type::kF16:
      return pick<Half16, 1>(s);
    case Type::kF16x2:
      return pick<Half16, 2>(s);
    case Type::kBF16:
      return pick<Bfloat16, 1>(s);
    case Type::kBF16x2:
      return pick<Bfloat16, 2>(s);
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
