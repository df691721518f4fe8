// Handlers of integer arithmetic.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_integer_rows.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

template <typename T>
struct Add {
  static T apply(T a, T b) { return static_cast<T>(a + b); }
};
template <typename T>
struct Sub {
  static T apply(T a, T b) { return static_cast<T>(a - b); }
};
template <typename T>
struct AddSat {
  static T apply(T a, T b) { return clamp_to<T>(Wide<T>{a} + Wide<T>{b}); }
};
template <typename T>
struct SubSat {
  static T apply(T a, T b) { return clamp_to<T>(Wide<T>{a} - Wide<T>{b}); }
};
template <typename T>
struct MulLow {
  static T apply(T a, T b) {
    using U = std::conditional_t<sizeof(T) == 2, uint32_t, Unsigned<T>>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
template <typename T>
struct MulHigh {
  static T apply(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
  }
};
template <typename T>
struct MulWide {
  static Wide<T> apply(T a, T b) { return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b); }
};
template <typename T>
struct MadLow {
  static T apply(T a, T b, T c) {
    using U = Unsigned<T>;
    return static_cast<T>(
        static_cast<U>(static_cast<U>(MulLow<T>::apply(a, b)) + static_cast<U>(c)));
  }
};
template <typename T>
struct MadHigh {
  static T apply(T a, T b, T c) {
    using U = Unsigned<T>;
    return static_cast<T>(
        static_cast<U>(static_cast<U>(MulHigh<T>::apply(a, b)) + static_cast<U>(c)));
  }
};
template <typename T>
struct MadHighSat {
  static T apply(T a, T b, T c) {
    return clamp_to<T>(Wide<T>{MulHigh<T>::apply(a, b)} + Wide<T>{c});
  }
};
template <typename T>
struct MadWide {
  static Wide<T> apply(T a, T b, Wide<T> c) {
    using W = std::make_unsigned_t<Wide<T>>;
    return static_cast<Wide<T>>(static_cast<W>(MulWide<T>::apply(a, b)) + static_cast<W>(c));
  }
};
template <typename T>
struct Div {
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
    }
    return static_cast<T>(a / b);
  }
};
template <typename T>
struct Rem {
  static T apply(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return 0;
    }
    return static_cast<T>(a % b);
  }
};
template <typename T>
struct Min {
  static T apply(T a, T b) { return b < a ? b : a; }
};
template <typename T>
struct Max {
  static T apply(T a, T b) { return a < b ? b : a; }
};
template <typename T>
struct MinRelu {
  static T apply(T a, T b) { return Max<T>::apply(Min<T>::apply(a, b), T{0}); }
};
template <typename T>
struct MaxRelu {
  static T apply(T a, T b) { return Max<T>::apply(Max<T>::apply(a, b), T{0}); }
};
template <typename T>
struct Abs {
  static T apply(T a) {
    return a < 0 ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)) : a;
  }
};
template <typename T>
struct Neg {
  static T apply(T a) { return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)); }
};
template <typename T>
struct Sad {
  static T apply(T a, T b, T c) {
    using U = Unsigned<T>;
    const U difference = a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
                               : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
    return static_cast<T>(static_cast<U>(static_cast<U>(c) + difference));
  }
};
template <typename T, bool High>
struct Mul24 {
  static T apply(T a, T b) {
    const auto low = [](T x) {
      return static_cast<T>(static_cast<T>(static_cast<uint32_t>(x) << 8) >> 8);
    };
    const auto product = static_cast<uint64_t>(Wide<T>{low(a)} * Wide<T>{low(b)});
    return static_cast<T>(static_cast<uint32_t>(High ? product >> 16 : product));
  }
};
template <typename T, bool High>
struct Mad24 {
  static T apply(T a, T b, T c) {
    return static_cast<T>(static_cast<uint32_t>(Mul24<T, High>::apply(a, b)) +
                          static_cast<uint32_t>(c));
  }
};
struct Mad24HighSat {
  static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return clamp_to<int32_t>(int64_t{Mul24<int32_t, true>::apply(a, b)} + c);
  }
};

// option bit 0: carry in, bit 1: carry out. The carry is a predicate, in `p`; it comes in in `e`.
template <typename T, typename F>
void with_carry(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  T* d = context.row<T>(in.d);
  const uint32_t before = (in.option & 1) != 0 ? *context.row<uint32_t>(in.e) : 0;
  const T* c = in.c == kNoOperand ? nullptr : context.row<T>(in.c);
  uint32_t carries = 0;
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    bool carry = ((before >> i) & 1) != 0;
    d[i] = F::apply(a[i], b[i], c == nullptr ? T{0} : c[i], carry);
    carries |= (carry ? 1U : 0U) << i;
  }
  if ((in.option & 2) != 0) set_predicate(context, in.p, carries);
}

template <typename T>
struct AddCarry {
  static T apply(T a, T b, T, bool& carry) {
    const Wide<T> sum = Wide<T>{a} + b + (carry ? 1U : 0U);
    carry = (sum >> (8 * sizeof(T))) != 0;
    return static_cast<T>(sum);
  }
};
template <typename T>
struct SubBorrow {
  static T apply(T a, T b, T, bool& carry) {
    const Wide<T> difference = Wide<T>{a} - b - (carry ? 1U : 0U);
    carry = ((difference >> (8 * sizeof(T))) & 1) != 0;
    return static_cast<T>(difference);
  }
};
template <typename T, bool High>
struct MadCarry {
  static auto apply(T a, T b, T c, bool& carry) {
    using U = Unsigned<T>;
    const U product = static_cast<U>(High ? MulHigh<T>::apply(a, b) : MulLow<T>::apply(a, b));
    return static_cast<T>(AddCarry<U>::apply(product, static_cast<U>(c), U{0}, carry));
  }
};

// d.pred = a op b
Handler addition(const Shape& s) {
  const bool in = s.op == Op::kAddc || s.op == Op::kSubc;
  const bool subtract = s.op == Op::kSub || s.op == Op::kSubc;
  if (in || s.carry) {
    if (type_size(s.type) == 4)
      return subtract ? with_carry<uint32_t, SubBorrow<uint32_t>>
                      : with_carry<uint32_t, AddCarry<uint32_t>>;
    if (type_size(s.type) == 8)
      return subtract ? with_carry<uint64_t, SubBorrow<uint64_t>>
                      : with_carry<uint64_t, AddCarry<uint64_t>>;
    return nullptr;
  }
  if (s.type == Type::kU16x2 || s.type == Type::kS16x2)
    return subtract ? packed<Sub>(s.type) : packed<Add>(s.type);
  if (s.saturate) {
    if (s.type != Type::kS32) return nullptr;
    return subtract ? binary<int32_t, SubSat<int32_t>> : binary<int32_t, AddSat<int32_t>>;
  }
  return subtract ? unsigned_binary<Sub>(type_size(s.type))
                  : unsigned_binary<Add>(type_size(s.type));
}

Handler multiplication(const Shape& s) {
  if (s.half == Half::kWide) return wide_binary<MulWide>(s.type);
  return s.half == Half::kHigh ? typed_binary<MulHigh>(s.type) : typed_binary<MulLow>(s.type);
}

Handler multiply_add(const Shape& s) {
  const bool high = s.half == Half::kHigh;
  if (s.op == Op::kMadc || s.carry) {
    switch (s.type) {
      case Type::kU32:
        return high ? with_carry<uint32_t, MadCarry<uint32_t, true>>
                    : with_carry<uint32_t, MadCarry<uint32_t, false>>;
      case Type::kS32:
        return high ? with_carry<int32_t, MadCarry<int32_t, true>>
                    : with_carry<int32_t, MadCarry<int32_t, false>>;
      case Type::kU64:
        return high ? with_carry<uint64_t, MadCarry<uint64_t, true>>
                    : with_carry<uint64_t, MadCarry<uint64_t, false>>;
      case Type::kS64:
        return high ? with_carry<int64_t, MadCarry<int64_t, true>>
                    : with_carry<int64_t, MadCarry<int64_t, false>>;
      default:
        return nullptr;
    }
  }
  if (s.half == Half::kWide) {
    switch (s.type) {
      case Type::kU16:
        return ternary<uint16_t, uint32_t, MadWide<uint16_t>>;
      case Type::kS16:
        return ternary<int16_t, int32_t, MadWide<int16_t>>;
      case Type::kU32:
        return ternary<uint32_t, uint64_t, MadWide<uint32_t>>;
      case Type::kS32:
        return ternary<int32_t, int64_t, MadWide<int32_t>>;
      default:
        return nullptr;
    }
  }
  if (s.saturate)
    return high && s.type == Type::kS32 ? ternary<int32_t, int32_t, MadHighSat<int32_t>> : nullptr;
  return high ? typed_ternary<MadHigh>(s.type) : typed_ternary<MadLow>(s.type);
}

Handler multiply24(const Shape& s) {
  const bool high = s.half == Half::kHigh;
  const bool add = s.op == Op::kMad24;
  if (s.saturate)
    return add && high && s.type == Type::kS32 ? ternary<int32_t, int32_t, Mad24HighSat> : nullptr;
  if (s.type == Type::kU32) {
    if (add)
      return high ? ternary<uint32_t, uint32_t, Mad24<uint32_t, true>>
                  : ternary<uint32_t, uint32_t, Mad24<uint32_t, false>>;
    return high ? binary<uint32_t, Mul24<uint32_t, true>>
                : binary<uint32_t, Mul24<uint32_t, false>>;
  }
  if (s.type != Type::kS32) return nullptr;
  if (add)
    return high ? ternary<int32_t, int32_t, Mad24<int32_t, true>>
                : ternary<int32_t, int32_t, Mad24<int32_t, false>>;
  return high ? binary<int32_t, Mul24<int32_t, true>> : binary<int32_t, Mul24<int32_t, false>>;
}

Handler minimum(const Shape& s) {
  const bool min = s.op == Op::kMin;
  if (s.type == Type::kU16x2 || s.type == Type::kS16x2) {
    if (s.relu) return min ? packed<MinRelu>(s.type) : packed<MaxRelu>(s.type);
    return min ? packed<Min>(s.type) : packed<Max>(s.type);
  }
  if (s.relu) return min ? typed_binary<MinRelu>(s.type) : typed_binary<MaxRelu>(s.type);
  return min ? typed_binary<Min>(s.type) : typed_binary<Max>(s.type);
}

}  // namespace

Handler integer_handler(const Shape& s) {
  switch (s.op) {
    case Op::kAdd:
    case Op::kSub:
    case Op::kAddc:
    case Op::kSubc:
      return addition(s);
    case Op::kMul:
      return multiplication(s);
    case Op::kMad:
    case Op::kMadc:
      return multiply_add(s);
    case Op::kMul24:
    case Op::kMad24:
      return multiply24(s);
    case Op::kDiv:
      return typed_binary<Div>(s.type);
    case Op::kRem:
      return typed_binary<Rem>(s.type);
    case Op::kAbs:
      return signed_unary<Abs>(s.type);
    case Op::kNeg:
      return signed_unary<Neg>(s.type);
    case Op::kMin:
    case Op::kMax:
      return minimum(s);
    case Op::kSad:
      return typed_ternary<Sad>(s.type);
    default:
      return bits_handler(s);
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
