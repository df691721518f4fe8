// Handlers of cvt. Operands have the width of their types (8 bits: of 16); the decoder widens.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_narrow.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

// Instruction::option
constexpr uint8_t kFtz = 1;
constexpr uint8_t kSaturate = 2;
constexpr uint8_t kFinite = 4;
constexpr uint8_t kRelu = 8;

template <typename T>
using RowOf = std::conditional_t<sizeof(T) == 1,
                                 std::conditional_t<std::is_signed_v<T>, int16_t, uint16_t>, T>;

template <typename D, typename S, bool Saturate>
void integer_to_integer(const Instruction& in, Context& context) {
  const RowOf<S>* a = context.row<RowOf<S>>(in.a);
  RowOf<D>* d = context.row<RowOf<D>>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    const S x = static_cast<S>(a[i]);
    if constexpr (Saturate) {
      if (std::cmp_less(x, std::numeric_limits<D>::min())) {
        d[i] = std::numeric_limits<D>::min();
      } else if (std::cmp_greater(x, std::numeric_limits<D>::max())) {
        d[i] = std::numeric_limits<D>::max();
      } else {
        d[i] = static_cast<D>(x);
      }
    } else {
      d[i] = static_cast<D>(x);
    }
  });
}

template <typename D, typename S>
void integer_to_float(const Instruction& in, Context& context) {
  const RowOf<S>* a = context.row<RowOf<S>>(in.a);
  D* d = context.row<D>(in.d);
  const bool saturate = (in.option & kSaturate) != 0;
  for_lanes(context.mask, [=](uint32_t i) {
    const D x = static_cast<D>(static_cast<S>(a[i]));
    d[i] = saturate ? output<false, true>(x) : x;
  });
}

template <typename D, typename S>
void integer_to_float_rounded(const Instruction& in, Context& context) {
  using Wide = std::conditional_t<std::is_signed_v<S>, int64_t, uint64_t>;
  const RowOf<S>* a = context.row<RowOf<S>>(in.a);
  D* d = context.row<D>(in.d);
  const RoundingScope scope(static_cast<Rounding>(in.option2));
  const bool saturate = (in.option & kSaturate) != 0;
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    D x = 0;
    if constexpr (sizeof(D) == 4) x = rounded_float(Wide{static_cast<S>(a[i])});
    if constexpr (sizeof(D) == 8) x = rounded_double(Wide{static_cast<S>(a[i])});
    d[i] = saturate ? output<false, true>(x) : x;
  }
}

template <typename F>
F to_integral(F x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero:
      return std::trunc(x);
    case Rounding::kDown:
      return std::floor(x);
    case Rounding::kUp:
      return std::ceil(x);
    case Rounding::kAway:
      return std::round(x);
    default:
      return std::nearbyint(x);
  }
}

// Out of range becomes the nearest value; NaN becomes 0 in 32 bits, the lowest of all in 64.
template <typename D, typename F>
D clamp_to_integer(F x) {
  if (x != x) return sizeof(D) == 8 ? static_cast<D>(uint64_t{1} << 63) : D{0};
  // As a power of two the limit is exact.
  constexpr F kLimit = std::is_signed_v<D> ? F(uint64_t{1} << (8 * sizeof(D) - 1))
                                           : F(2) * F(uint64_t{1} << (8 * sizeof(D) - 1));
  if (x >= kLimit) return std::numeric_limits<D>::max();
  if (std::is_signed_v<D> ? x < -kLimit : x <= F{-1}) return std::numeric_limits<D>::min();
  return static_cast<D>(x);
}

// Reads a float of any width as the type that holds it exactly.
template <typename S>
struct Reader {
  using Value = S;
  using Row = S;
  static S read(const S* row, uint32_t i) { return row[i]; }
};
template <>
struct Reader<Half16> {
  using Value = float;
  using Row = uint16_t;
  static float read(const uint16_t* row, uint32_t i) { return Half16::to_float(row[i]); }
};
template <>
struct Reader<Bfloat16> {
  using Value = float;
  using Row = uint16_t;
  static float read(const uint16_t* row, uint32_t i) { return Bfloat16::to_float(row[i]); }
};

template <typename D, typename S>
void float_to_integer(const Instruction& in, Context& context) {
  const auto* a = context.row<typename Reader<S>::Row>(in.a);
  RowOf<D>* d = context.row<RowOf<D>>(in.d);
  const auto rounding = static_cast<Rounding>(in.option2);
  const bool ftz = (in.option & kFtz) != 0;
  const auto convert = [=](uint32_t i, Rounding mode) {
    auto x = Reader<S>::read(a, i);
    if constexpr (std::is_same_v<S, float>) x = ftz ? flush(x) : x;
    d[i] = clamp_to_integer<D>(to_integral(x, mode));
  };
  if (rounding == Rounding::kZero) {
    for_lanes(context.mask, [=](uint32_t i) { convert(i, Rounding::kZero); });
  } else {
    for_lanes(context.mask, [=](uint32_t i) { convert(i, rounding); });
  }
}

template <typename T>
T adjust(T x, uint8_t option) {
  if constexpr (std::is_same_v<T, float>) x = (option & kFtz) != 0 ? flush(x) : x;
  if ((option & kSaturate) != 0) return output<false, true>(x);
  if ((option & kRelu) != 0 && x < 0) return 0;
  return canonical(x);
}

// To f32 or f64; rounded to an integer if option2 has its high bit.
template <typename D, typename S>
void float_to_float(const Instruction& in, Context& context) {
  const auto* a = context.row<typename Reader<S>::Row>(in.a);
  D* d = context.row<D>(in.d);
  const uint8_t option = in.option;
  const auto rounding = static_cast<Rounding>(in.option2 & 0x7f);
  const bool integral = (in.option2 & 0x80) != 0;
  const auto read = [=](uint32_t i) {
    auto x = Reader<S>::read(a, i);
    if constexpr (std::is_same_v<S, float>) x = (option & kFtz) != 0 ? flush(x) : x;
    return integral ? to_integral(x, rounding) : x;
  };
  if constexpr (std::is_same_v<D, float> && std::is_same_v<S, double>) {
    if (!integral && rounding != Rounding::kNone && rounding != Rounding::kNearest) {
      const RoundingScope scope(rounding);
      for (uint32_t m = context.mask; m != 0; m &= m - 1) {
        const auto i = static_cast<uint32_t>(std::countr_zero(m));
        d[i] = adjust(rounded_float(a[i]), option);
      }
      return;
    }
  }
  for_lanes(context.mask, [=](uint32_t i) { d[i] = adjust(static_cast<D>(read(i)), option); });
}

template <typename H>
uint16_t narrow(double x, Rounding rounding, uint8_t option) {
  if ((option & kSaturate) != 0) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if ((option & kRelu) != 0 && x < 0) x = 0;
  return static_cast<uint16_t>(round_to(H::kFormat, x, rounding, (option & kFinite) != 0));
}

template <typename H, typename S>
void float_to_narrow(const Instruction& in, Context& context) {
  const auto* a = context.row<typename Reader<S>::Row>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  const auto rounding = static_cast<Rounding>(in.option2 & 0x7f);
  const bool integral = (in.option2 & 0x80) != 0;
  const bool nearest = rounding == Rounding::kNone || rounding == Rounding::kNearest;
  if (option == 0 && nearest && !integral && !std::is_same_v<S, double>) {
    for_lanes(context.mask,
              [=](uint32_t i) { d[i] = H::from_float(static_cast<float>(Reader<S>::read(a, i))); });
    return;
  }
  for_lanes(context.mask, [=](uint32_t i) {
    auto x = Reader<S>::read(a, i);
    if constexpr (std::is_same_v<S, float>) x = (option & kFtz) != 0 ? flush(x) : x;
    if (integral) x = to_integral(x, rounding);
    d[i] = narrow<H>(static_cast<double>(x), rounding, option);
  });
}

template <typename H, typename S>
void integer_to_narrow(const Instruction& in, Context& context) {
  const RowOf<S>* a = context.row<RowOf<S>>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  const auto rounding = static_cast<Rounding>(in.option2 & 0x7f);
  for_lanes(context.mask, [=](uint32_t i) {
    // More than 53 bits are kept as one below: two bytes of a mantissa cannot tell.
    const S x = static_cast<S>(a[i]);
    const bool large =
        std::cmp_greater(x, int64_t{1} << 52) || std::cmp_less(x, -(int64_t{1} << 52));
    const double value =
        large ? static_cast<double>(static_cast<S>((x >> 11) | ((x & 2047) != 0 ? 1 : 0))) * 2048
              : static_cast<double>(x);
    d[i] = narrow<H>(value, rounding, option);
  });
}

// d = {a, b}: a becomes the upper half.
template <typename H>
void pair(const Instruction& in, Context& context) {
  const float* a = context.row<float>(in.a);
  const float* b = context.row<float>(in.b);
  uint16_t* d = context.row<uint16_t>(in.d);
  const uint8_t option = in.option;
  const auto rounding = static_cast<Rounding>(in.option2 & 0x7f);
  for_lanes(context.mask, [=](uint32_t i) {
    const uint16_t upper = narrow<H>(double{a[i]}, rounding, option);
    const uint16_t lower = narrow<H>(double{b[i]}, rounding, option);
    d[2 * i] = lower;
    d[2 * i + 1] = upper;
  });
}

// Two 8-bit floats in 16 bits, from a pair of f32 or from f16x2.
template <const Format& To, bool FromPair>
void to_bytes(const Instruction& in, Context& context) {
  const float* a = context.row<float>(in.a);
  const float* b = FromPair ? context.row<float>(in.b) : a;
  const uint16_t* halves = context.row<uint16_t>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  const bool relu = (in.option & kRelu) != 0;
  for_lanes(context.mask, [=](uint32_t i) {
    double upper = FromPair ? double{a[i]} : double{Half16::to_float(halves[2 * i + 1])};
    double lower = FromPair ? double{b[i]} : double{Half16::to_float(halves[2 * i])};
    if (relu && upper < 0) upper = 0;
    if (relu && lower < 0) lower = 0;
    d[i] = static_cast<uint16_t>(round_to(To, upper, Rounding::kNearest, true) << 8 |
                                 round_to(To, lower, Rounding::kNearest, true));
  });
}
template <const Format& From>
void from_bytes(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  uint16_t* d = context.row<uint16_t>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    const uint16_t both = a[i];
    d[2 * i] = narrow<Half16>(expand(From, both & 0xff), Rounding::kNearest, 0);
    d[2 * i + 1] = narrow<Half16>(expand(From, both >> 8), Rounding::kNearest, 0);
  });
}
void to_tf32(const Instruction& in, Context& context) {
  const float* a = context.row<float>(in.a);
  uint32_t* d = context.row<uint32_t>(in.d);
  const auto rounding = static_cast<Rounding>(in.option2 & 0x7f);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t i) {
    const double x = (option & kRelu) != 0 && a[i] < 0 ? 0.0 : double{a[i]};
    d[i] = round_to(kTf32Format, x, rounding, (option & kFinite) != 0) << 13;
  });
}

template <typename D, typename S>
Handler from_integer_to_integer(bool saturate) {
  return saturate ? integer_to_integer<D, S, true> : integer_to_integer<D, S, false>;
}

template <typename S>
Handler from_integer(const Shape& s) {
  const bool nearest = s.rounding == Rounding::kNone || s.rounding == Rounding::kNearest;
  switch (s.type) {
    case Type::kB8:
    case Type::kU8:
      return from_integer_to_integer<uint8_t, S>(s.saturate);
    case Type::kS8:
      return from_integer_to_integer<int8_t, S>(s.saturate);
    case Type::kB16:
    case Type::kU16:
      return from_integer_to_integer<uint16_t, S>(s.saturate);
    case Type::kS16:
      return from_integer_to_integer<int16_t, S>(s.saturate);
    case Type::kB32:
    case Type::kU32:
      return from_integer_to_integer<uint32_t, S>(s.saturate);
    case Type::kS32:
      return from_integer_to_integer<int32_t, S>(s.saturate);
    case Type::kB64:
    case Type::kU64:
      return from_integer_to_integer<uint64_t, S>(s.saturate);
    case Type::kS64:
      return from_integer_to_integer<int64_t, S>(s.saturate);
    case Type::kF32:
      return nearest ? integer_to_float<float, S> : integer_to_float_rounded<float, S>;
    case Type::kF64:
      return nearest ? integer_to_float<double, S> : integer_to_float_rounded<double, S>;
    case Type::kF16:
      return integer_to_narrow<Half16, S>;
    case Type::kBF16:
      return integer_to_narrow<Bfloat16, S>;
    default:
      return nullptr;
  }
}

template <typename S>
Handler from_float(const Shape& s) {
  switch (s.type) {
    case Type::kU8:
      return float_to_integer<uint8_t, S>;
    case Type::kS8:
      return float_to_integer<int8_t, S>;
    case Type::kU16:
      return float_to_integer<uint16_t, S>;
    case Type::kS16:
      return float_to_integer<int16_t, S>;
    case Type::kU32:
      return float_to_integer<uint32_t, S>;
    case Type::kS32:
      return float_to_integer<int32_t, S>;
    case Type::kU64:
      return float_to_integer<uint64_t, S>;
    case Type::kS64:
      return float_to_integer<int64_t, S>;
    case Type::kF32:
      return float_to_float<float, S>;
    case Type::kF64:
      return float_to_float<double, S>;
    case Type::kF16:
      return float_to_narrow<Half16, S>;
    case Type::kBF16:
      return float_to_narrow<Bfloat16, S>;
    default:
      return nullptr;
  }
}

template <const Format& To>
Handler bytes(Type from) {
  if (from == Type::kF32) return to_bytes<To, true>;
  return from == Type::kF16x2 ? to_bytes<To, false> : nullptr;
}

}  // namespace

Handler convert_handler(const Shape& s) {
  switch (s.type) {
    case Type::kF16x2:
      if (s.type2 == Type::kE4M3x2) return from_bytes<kE4M3Format>;
      if (s.type2 == Type::kE5M2x2) return from_bytes<kE5M2Format>;
      return s.type2 == Type::kF32 ? pair<Half16> : nullptr;
    case Type::kBF16x2:
      return s.type2 == Type::kF32 ? pair<Bfloat16> : nullptr;
    case Type::kE4M3x2:
      return bytes<kE4M3Format>(s.type2);
    case Type::kE5M2x2:
      return bytes<kE5M2Format>(s.type2);
    case Type::kTF32:
      return s.type2 == Type::kF32 ? to_tf32 : nullptr;
    default:
      break;
  }
  switch (s.type2) {
    case Type::kB8:
    case Type::kU8:
      return from_integer<uint8_t>(s);
    case Type::kS8:
      return from_integer<int8_t>(s);
    case Type::kB16:
    case Type::kU16:
      return from_integer<uint16_t>(s);
    case Type::kS16:
      return from_integer<int16_t>(s);
    case Type::kB32:
    case Type::kU32:
      return from_integer<uint32_t>(s);
    case Type::kS32:
      return from_integer<int32_t>(s);
    case Type::kB64:
    case Type::kU64:
      return from_integer<uint64_t>(s);
    case Type::kS64:
      return from_integer<int64_t>(s);
    case Type::kF32:
      return from_float<float>(s);
    case Type::kF64:
      return from_float<double>(s);
    case Type::kF16:
      return from_float<Half16>(s);
    case Type::kBF16:
      return from_float<Bfloat16>(s);
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
