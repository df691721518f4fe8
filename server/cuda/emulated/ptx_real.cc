// Handlers of f32 and f64 arithmetic.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_lanes.h"
#include "server/cuda/emulated/ptx_rounding.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

struct Add {
  template <typename T>
  static T apply(T a, T b) {
    return a + b;
  }
  template <typename T>
  static T rounded(T a, T b) {
    return rounded_add(a, b);
  }
};
struct Sub {
  template <typename T>
  static T apply(T a, T b) {
    return a - b;
  }
  template <typename T>
  static T rounded(T a, T b) {
    return rounded_add(a, -b);
  }
};
struct Mul {
  template <typename T>
  static T apply(T a, T b) {
    return a * b;
  }
  template <typename T>
  static T rounded(T a, T b) {
    return rounded_mul(a, b);
  }
};
struct Div {
  template <typename T>
  static T apply(T a, T b) {
    return a / b;
  }
  template <typename T>
  static T rounded(T a, T b) {
    return rounded_div(a, b);
  }
};
struct Rcp {
  template <typename T>
  static T apply(T a) {
    return T{1} / a;
  }
  template <typename T>
  static T rounded(T a) {
    return rounded_div(T{1}, a);
  }
};
struct Sqrt {
  template <typename T>
  static T apply(T a) {
    return std::sqrt(a);
  }
  template <typename T>
  static T rounded(T a) {
    return rounded_sqrt(a);
  }
};
struct Fma {
  template <typename T>
  static T apply(T a, T b, T c) {
    return std::fma(a, b, c);
  }
  template <typename T>
  static T rounded(T a, T b, T c) {
    return rounded_fma(a, b, c);
  }
};
struct Rsqrt {
  template <typename T>
  static T apply(T a) {
    return a == 0 ? T{1} / a : T{1} / std::sqrt(a);
  }
};
struct Sin {
  template <typename T>
  static T apply(T a) {
    return std::sin(a);
  }
};
struct Cos {
  template <typename T>
  static T apply(T a) {
    return std::cos(a);
  }
};
struct Ex2 {
  template <typename T>
  static T apply(T a) {
    return std::exp2(a);
  }
};
struct Lg2 {
  template <typename T>
  static T apply(T a) {
    return std::log2(a);
  }
};
struct Tanh {
  template <typename T>
  static T apply(T a) {
    return std::tanh(a);
  }
};

template <typename T, typename F, bool Ftz, bool Saturate>
void unary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask,
            [=](uint32_t i) { d[i] = output<Ftz, Saturate>(F::apply(input<Ftz>(a[i]))); });
}

template <typename T, typename F, bool Ftz, bool Saturate>
void binary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    d[i] = output<Ftz, Saturate>(F::apply(input<Ftz>(a[i]), input<Ftz>(b[i])));
  });
}

template <typename T, typename F, bool Ftz, bool Saturate>
void ternary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  const T* c = context.row<T>(in.c);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    d[i] = output<Ftz, Saturate>(F::apply(input<Ftz>(a[i]), input<Ftz>(b[i]), input<Ftz>(c[i])));
  });
}

// In another rounding mode, which `option` holds. Operands: 1, 2 or 3.
template <typename T, typename F, bool Ftz, bool Saturate, int Count>
void rounded(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = Count > 1 ? context.row<T>(in.b) : a;
  const T* c = Count > 2 ? context.row<T>(in.c) : a;
  T* d = context.row<T>(in.d);
  T results[kLanes];
  {
    const RoundingScope scope(static_cast<Rounding>(in.option));
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (((context.mask >> i) & 1) == 0) continue;
      if constexpr (Count == 1) results[i] = F::rounded(input<Ftz>(a[i]));
      if constexpr (Count == 2) results[i] = F::rounded(input<Ftz>(a[i]), input<Ftz>(b[i]));
      if constexpr (Count == 3) {
        results[i] = F::rounded(input<Ftz>(a[i]), input<Ftz>(b[i]), input<Ftz>(c[i]));
      }
    }
  }
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    d[i] = output<Ftz, Saturate>(results[i]);
  }
}

// One of -0 and +0 is the less.
template <bool Max, typename T>
T extreme(T a, T b) {
  if (a == b) return (std::signbit(a) != Max) ? a : b;
  return (a < b) != Max ? a : b;
}

// option bit 0: NaN wins; bit 1: .xorsign.abs
template <typename T, bool Max, bool Ftz>
void minimum(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  const T* c = in.c == kNoOperand ? nullptr : context.row<T>(in.c);
  T* d = context.row<T>(in.d);
  const bool nan_wins = (in.option & 1) != 0;
  const bool xorsign = (in.option & 2) != 0;
  const auto pick = [=](T x, T y) {
    if (x != x || y != y) {
      if (nan_wins || (x != x && y != y)) return canonical(std::numeric_limits<T>::quiet_NaN());
      return x != x ? y : x;
    }
    return extreme<Max>(x, y);
  };
  for_lanes(context.mask, [=](uint32_t i) {
    T x = input<Ftz>(a[i]);
    T y = input<Ftz>(b[i]);
    const bool negative = xorsign && std::signbit(x) != std::signbit(y);
    if (xorsign) x = std::abs(x);
    if (xorsign) y = std::abs(y);
    T r = pick(x, y);
    if (c != nullptr) r = pick(r, input<Ftz>(c[i]));
    if (xorsign) r = std::copysign(r, negative ? T{-1} : T{1});
    d[i] = r;
  });
}

template <typename T, bool Negate, bool Ftz>
void sign(const Instruction& in, Context& context) {
  using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr U kSign = U{1} << (8 * sizeof(T) - 1);
  const T* a = context.row<T>(in.a);
  U* d = context.row<U>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    const U bits = std::bit_cast<U>(input<Ftz>(a[i]));
    d[i] = Negate ? bits ^ kSign : bits & ~kSign;
  });
}

template <typename U>
void copysign(const Instruction& in, Context& context) {
  constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
  const U* a = context.row<U>(in.a);
  const U* b = context.row<U>(in.b);
  U* d = context.row<U>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = (b[i] & ~kSign) | (a[i] & kSign); });
}

template <typename T>
void testp(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const auto mode = static_cast<Mode>(in.option);
  const uint32_t bits = collect(context.mask, [=](uint32_t i) {
    switch (mode) {
      case Mode::kFinite:
        return std::isfinite(a[i]);
      case Mode::kInfinite:
        return std::isinf(a[i]);
      case Mode::kNumber:
        return !std::isnan(a[i]);
      case Mode::kNotANumber:
        return std::isnan(a[i]);
      case Mode::kNormal:
        return std::isnormal(a[i]);
      default:
        return std::fpclassify(a[i]) == FP_SUBNORMAL;
    }
  });
  set_predicate(context, in.d, bits);
}

// f32x2: a pair a lane, each by itself.
template <typename F, int Count>
void paired(const Instruction& in, Context& context) {
  const float* a = context.row<float>(in.a);
  const float* b = context.row<float>(in.b);
  const float* c = Count > 2 ? context.row<float>(in.c) : a;
  float* d = context.row<float>(in.d);
  const bool ftz = in.option2 != 0;
  for_lanes(context.mask, [=](uint32_t lane) {
    for (uint32_t i = 2 * lane; i < 2 * lane + 2; ++i) {
      const auto in_value = [=](float x) { return ftz ? flush(x) : x; };
      float r = 0;
      if constexpr (Count == 2) r = F::apply(in_value(a[i]), in_value(b[i]));
      if constexpr (Count == 3) r = F::apply(in_value(a[i]), in_value(b[i]), in_value(c[i]));
      d[i] = canonical(in_value(r));
    }
  });
}

template <typename F, int Count, bool Ftz, bool Saturate>
Handler pick(const Shape& s) {
  const bool nearest = s.rounding == Rounding::kNone || s.rounding == Rounding::kNearest;
  if (s.type == Type::kF64) {
    if constexpr (Ftz || Saturate) {
      return nullptr;
    } else {
      if (!nearest) return rounded<double, F, false, false, Count>;
      if constexpr (Count == 1) return unary<double, F, false, false>;
      if constexpr (Count == 2) return binary<double, F, false, false>;
      if constexpr (Count == 3) return ternary<double, F, false, false>;
    }
  }
  if (s.type != Type::kF32) return nullptr;
  if (!nearest) return rounded<float, F, Ftz, Saturate, Count>;
  if constexpr (Count == 1) return unary<float, F, Ftz, Saturate>;
  if constexpr (Count == 2) return binary<float, F, Ftz, Saturate>;
  if constexpr (Count == 3) return ternary<float, F, Ftz, Saturate>;
}

template <typename F, int Count>
Handler arithmetic(const Shape& s) {
  if constexpr (Count > 1) {
    if (s.type == Type::kF32x2) return paired<F, Count>;
  }
  if (s.ftz) return s.saturate ? pick<F, Count, true, true>(s) : pick<F, Count, true, false>(s);
  return s.saturate ? pick<F, Count, false, true>(s) : pick<F, Count, false, false>(s);
}

template <typename F>
Handler approximate(const Shape& s) {
  if (s.type == Type::kF64) {
    return s.ftz ? unary<double, F, true, false> : unary<double, F, false, false>;
  }
  if (s.type != Type::kF32) return nullptr;
  return s.ftz ? unary<float, F, true, false> : unary<float, F, false, false>;
}

template <bool Max>
Handler extremes(const Shape& s) {
  if (s.type == Type::kF64) return minimum<double, Max, false>;
  if (s.type != Type::kF32) return nullptr;
  return s.ftz ? minimum<float, Max, true> : minimum<float, Max, false>;
}

template <bool Negate>
Handler signs(const Shape& s) {
  if (s.type == Type::kF64) return sign<double, Negate, false>;
  if (s.type != Type::kF32) return nullptr;
  return s.ftz ? sign<float, Negate, true> : sign<float, Negate, false>;
}

}  // namespace

Handler real_handler(const Shape& s) {
  switch (s.op) {
    case Op::kAdd:
      return arithmetic<Add, 2>(s);
    case Op::kSub:
      return arithmetic<Sub, 2>(s);
    case Op::kMul:
      return arithmetic<Mul, 2>(s);
    case Op::kMad:
    case Op::kFma:
      return arithmetic<Fma, 3>(s);
    case Op::kDiv:
      return arithmetic<Div, 2>(s);
    case Op::kRcp:
      // .approx.ftz.f64: as good as the exact one.
      return s.type == Type::kF64 && s.ftz ? approximate<Rcp>(s) : arithmetic<Rcp, 1>(s);
    case Op::kSqrt:
      return arithmetic<Sqrt, 1>(s);
    case Op::kRsqrt:
      return approximate<Rsqrt>(s);
    case Op::kSin:
      return approximate<Sin>(s);
    case Op::kCos:
      return approximate<Cos>(s);
    case Op::kEx2:
      return approximate<Ex2>(s);
    case Op::kLg2:
      return approximate<Lg2>(s);
    case Op::kTanh:
      return approximate<Tanh>(s);
    case Op::kMin:
      return extremes<false>(s);
    case Op::kMax:
      return extremes<true>(s);
    case Op::kAbs:
      return signs<false>(s);
    case Op::kNeg:
      return signs<true>(s);
    case Op::kCopysign:
      return s.type == Type::kF64 ? copysign<uint64_t> : copysign<uint32_t>;
    case Op::kTestp:
      return s.type == Type::kF64 ? testp<double> : testp<float>;
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
