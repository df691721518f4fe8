// Handlers of integer arithmetic, logic and bit fields.
#include <utility>

#include "server/cuda/emulated/ptx_lanes.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

template <typename T>
struct Widened;
template <>
struct Widened<uint16_t> {
  using type = uint32_t;
};
template <>
struct Widened<int16_t> {
  using type = int32_t;
};
template <>
struct Widened<uint32_t> {
  using type = uint64_t;
};
template <>
struct Widened<int32_t> {
  using type = int64_t;
};
__extension__ using Wide128 = __int128;
__extension__ using UnsignedWide128 = unsigned __int128;
template <>
struct Widened<uint64_t> {
  using type = UnsignedWide128;
};
template <>
struct Widened<int64_t> {
  using type = Wide128;
};
template <typename T>
using Wide = typename Widened<T>::type;
template <typename T>
using Unsigned = std::make_unsigned_t<T>;

template <typename T, typename F>
void unary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  auto* d = context.row<decltype(F::apply(T{}))>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = F::apply(a[i]); });
}

template <typename T, typename F>
void binary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  auto* d = context.row<decltype(F::apply(T{}, T{}))>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = F::apply(a[i], b[i]); });
}

template <typename T, typename B, typename F>
void shift(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const B* b = context.row<B>(in.b);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = F::apply(a[i], b[i]); });
}

template <typename T, typename C, typename F>
void ternary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  const C* c = context.row<C>(in.c);
  auto* d = context.row<decltype(F::apply(T{}, T{}, C{}))>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = F::apply(a[i], b[i], c[i]); });
}

template <typename T>
T clamp_to(Wide<T> x) {
  constexpr Wide<T> kMin = std::numeric_limits<T>::min();
  constexpr Wide<T> kMax = std::numeric_limits<T>::max();
  return static_cast<T>(x < kMin ? kMin : x > kMax ? kMax : x);
}

// Each operator over unsigned values where signs make no difference; T decides elsewhere.
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
template <typename T>
struct And {
  static T apply(T a, T b) { return static_cast<T>(a & b); }
};
template <typename T>
struct Or {
  static T apply(T a, T b) { return static_cast<T>(a | b); }
};
template <typename T>
struct Xor {
  static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};
template <typename T>
struct Not {
  static T apply(T a) { return static_cast<T>(~a); }
};
template <typename T>
struct Cnot {
  static T apply(T a) { return a == 0 ? T{1} : T{0}; }
};
template <typename T>
struct ShiftLeft {
  static T apply(T a, uint32_t b) { return b >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << b); }
};
template <typename T>
struct ShiftRight {
  static T apply(T a, uint32_t b) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (b >= kBits ? kBits - 1 : b));
    return b >= kBits ? T{0} : static_cast<T>(a >> b);
  }
};
template <typename T>
struct Popc {
  static uint32_t apply(T a) { return static_cast<uint32_t>(std::popcount(a)); }
};
template <typename T>
struct Clz {
  static uint32_t apply(T a) { return static_cast<uint32_t>(std::countl_zero(a)); }
};
template <typename T>
struct Brev {
  static T apply(T a) {
    T r = 0;
    for (uint32_t i = 0; i < 8 * sizeof(T); ++i)
      r = static_cast<T>(r | (((a >> i) & 1) << (8 * sizeof(T) - 1 - i)));
    return r;
  }
};
// The position of the highest bit that is not the sign; Amount: as a distance from the top.
template <typename T, bool Amount>
struct Bfind {
  static uint32_t apply(T a) {
    using U = Unsigned<T>;
    const U u = static_cast<U>(a < 0 ? ~a : a);
    if (u == 0) return 0xffff'ffff;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(u));
    return Amount ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
  }
};
template <typename T>
struct Bfe {
  static T apply(T a, uint32_t position, uint32_t length) {
    using U = Unsigned<T>;
    constexpr uint32_t kBits = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    const uint32_t top = std::min(position + length - 1, kBits - 1);
    const bool fill = std::is_signed_v<T> && length != 0 && ((static_cast<U>(a) >> top) & 1) != 0;
    const U field = position >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
    const uint32_t got = position >= kBits ? 0 : std::min(length, kBits - position);
    const U mask = got >= kBits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << got) - 1);
    return static_cast<T>((field & mask) | (fill ? static_cast<U>(~mask) : U{0}));
  }
};

template <typename T>
void bfe(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = Bfe<T>::apply(a[i], b[i], c[i]); });
}

template <typename T>
void bfi(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  const uint32_t* position = context.row<uint32_t>(in.c);
  const uint32_t* length = context.row<uint32_t>(in.e);
  T* d = context.row<T>(in.d);
  constexpr uint32_t kBits = 8 * sizeof(T);
  for_lanes(context.mask, [=](uint32_t i) {
    const uint32_t at = position[i] & 0xff;
    const uint32_t count = length[i] & 0xff;
    const T ones = count >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
    const T mask = at >= kBits ? T{0} : static_cast<T>(ones << at);
    const T field = at >= kBits ? T{0} : static_cast<T>(a[i] << at);
    d[i] = static_cast<T>((b[i] & ~mask) | (field & mask));
  });
}

template <bool Left, bool Wrap>
void funnel_shift(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    const uint64_t both = (uint64_t{b[i]} << 32) | a[i];
    const uint32_t n = Wrap ? c[i] & 31 : (c[i] > 32 ? 32 : c[i]);
    d[i] = static_cast<uint32_t>(Left ? (n == 32 ? both << 32 : both << n) >> 32 : both >> n);
  });
}

void lop3(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  const auto table = static_cast<uint32_t>(in.immediate);
  uint32_t terms[8];
  for (uint32_t k = 0; k < 8; ++k) terms[k] = (table >> k) & 1 ? kAllLanes : 0;
  const uint32_t t0 = terms[0], t1 = terms[1], t2 = terms[2], t3 = terms[3];
  const uint32_t t4 = terms[4], t5 = terms[5], t6 = terms[6], t7 = terms[7];
  for_lanes(context.mask, [=](uint32_t i) {
    const uint32_t x = a[i], y = b[i], z = c[i];
    const uint32_t low = (~y & ((~z & t0) | (z & t1))) | (y & ((~z & t2) | (z & t3)));
    const uint32_t high = (~y & ((~z & t4) | (z & t5))) | (y & ((~z & t6) | (z & t7)));
    d[i] = (~x & low) | (x & high);
  });
}

uint32_t permute(uint32_t a, uint32_t b, uint32_t selector, Mode mode) {
  const uint64_t bytes = (uint64_t{b} << 32) | a;
  const uint32_t low = selector & 3;
  uint32_t result = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t pick = (selector >> (4 * k)) & 0xf;
    switch (mode) {
      case Mode::kF4e:
        pick = low + k;
        break;
      case Mode::kB4e:
        pick = (low - k) & 7;
        break;
      case Mode::kRc8:
        pick = low;
        break;
      case Mode::kEcl:
        pick = k > low ? k : low;
        break;
      case Mode::kEcr:
        pick = k < low ? k : low;
        break;
      case Mode::kRc16:
        pick = (low & 1) * 2 + (k & 1);
        break;
      default:
        break;
    }
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    if (mode == Mode::kNone && (pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * k);
  }
  return result;
}

void prmt(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  const auto mode = static_cast<Mode>(in.option);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = permute(a[i], b[i], c[i], mode); });
}

// Find the n-th set bit from a base position.
uint32_t find_nth_set(uint32_t mask, uint32_t base, int32_t offset) {
  if (offset == 0) return base < 32 && ((mask >> base) & 1) != 0 ? base : 0xffff'ffff;
  const int32_t step = offset > 0 ? 1 : -1;
  int32_t left = offset > 0 ? offset : -offset;
  for (int64_t at = base; at >= 0 && at < 32; at += step) {
    if (((mask >> at) & 1) != 0 && --left == 0) return static_cast<uint32_t>(at);
  }
  return 0xffff'ffff;
}

void fns(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const int32_t* c = context.row<int32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = find_nth_set(a[i], b[i], c[i]); });
}

template <bool Clamp>
struct Bmsk {
  static uint32_t apply(uint32_t position, uint32_t length) {
    if (!Clamp) {
      position &= 31;
      length &= 31;
    }
    if (position >= 32 || length == 0) return 0;
    const uint32_t ones = length >= 32 ? kAllLanes : (1U << length) - 1;
    return ones << position;
  }
};
template <typename T, bool Clamp>
struct Szext {
  static T apply(T value, T bits) {
    auto n = static_cast<uint32_t>(bits);
    if (!Clamp) n &= 31;
    if (n >= 32) return value;
    if (n == 0) return 0;
    const auto up = static_cast<uint32_t>(value) << (32 - n);
    return static_cast<T>(static_cast<T>(up) >> (32 - n));
  }
};

template <bool SignedA, bool SignedB, uint32_t Products>
void dot_product(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  const uint32_t half = in.option;  // dp2a.hi takes the upper two bytes of b.
  for_lanes(context.mask, [=](uint32_t i) {
    uint32_t sum = c[i];
    for (uint32_t k = 0; k < Products; ++k) {
      constexpr uint32_t kBits = 32 / Products;
      const uint32_t x = a[i] >> (kBits * k);
      const uint32_t y = b[i] >> (8 * (k + half));
      int32_t p = 0;
      if constexpr (Products == 4) {
        p = SignedA ? int8_t(x & 0xff) : int32_t(x & 0xff);
      } else {
        p = SignedA ? int16_t(x & 0xffff) : int32_t(x & 0xffff);
      }
      sum += static_cast<uint32_t>(p * (SignedB ? int8_t(y & 0xff) : int32_t(y & 0xff)));
    }
    d[i] = sum;
  });
}

// Only the low 24 bits of each factor count; High takes bits 47 to 16 of the product.
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
template <typename F>
void predicate_binary(const Instruction& in, Context& context) {
  set_predicate(context, in.d,
                F::apply(*context.row<uint32_t>(in.a), *context.row<uint32_t>(in.b)));
}
void predicate_not(const Instruction& in, Context& context) {
  set_predicate(context, in.d, ~*context.row<uint32_t>(in.a));
}

// vadd4 and friends, the ones that headers use: lanes of bytes, absolute differences, sums.
template <bool Signed>
void absolute_difference4(const Instruction& in, Context& context) {
  const uint32_t* a = context.row<uint32_t>(in.a);
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* d = context.row<uint32_t>(in.d);
  const bool add = in.option != 0;
  for_lanes(context.mask, [=](uint32_t i) {
    uint32_t packed = 0;
    uint32_t sum = c[i];
    for (uint32_t k = 0; k < 32; k += 8) {
      const int32_t x = Signed ? int8_t((a[i] >> k) & 0xff) : int32_t((a[i] >> k) & 0xff);
      const int32_t y = Signed ? int8_t((b[i] >> k) & 0xff) : int32_t((b[i] >> k) & 0xff);
      const auto difference = static_cast<uint32_t>(x < y ? y - x : x - y);
      packed |= (difference & 0xff) << k;
      sum += difference;
    }
    d[i] = add ? sum : packed;
  });
}

template <template <typename> class F, typename Selector>
Handler by_size(uint32_t size, Selector&& select) {
  switch (size) {
    case 1:
    case 2:
      return select.template operator()<uint16_t, F>();
    case 4:
      return select.template operator()<uint32_t, F>();
    case 8:
      return select.template operator()<uint64_t, F>();
    default:
      return nullptr;
  }
}
template <template <typename> class F>
Handler unsigned_binary(uint32_t size) {
  return by_size<F>(
      size, []<typename T, template <typename> class G>() -> Handler { return binary<T, G<T>>; });
}
template <template <typename> class F>
Handler typed_binary(Type type) {
  switch (type) {
    case Type::kU16:
      return binary<uint16_t, F<uint16_t>>;
    case Type::kS16:
      return binary<int16_t, F<int16_t>>;
    case Type::kU32:
      return binary<uint32_t, F<uint32_t>>;
    case Type::kS32:
      return binary<int32_t, F<int32_t>>;
    case Type::kU64:
      return binary<uint64_t, F<uint64_t>>;
    case Type::kS64:
      return binary<int64_t, F<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <typename> class F>
Handler typed_ternary(Type type) {
  switch (type) {
    case Type::kU16:
      return ternary<uint16_t, uint16_t, F<uint16_t>>;
    case Type::kS16:
      return ternary<int16_t, int16_t, F<int16_t>>;
    case Type::kU32:
      return ternary<uint32_t, uint32_t, F<uint32_t>>;
    case Type::kS32:
      return ternary<int32_t, int32_t, F<int32_t>>;
    case Type::kU64:
      return ternary<uint64_t, uint64_t, F<uint64_t>>;
    case Type::kS64:
      return ternary<int64_t, int64_t, F<int64_t>>;
    default:
      return nullptr;
  }
}
template <template <typename> class F>
Handler wide_binary(Type type) {
  switch (type) {
    case Type::kU16:
      return binary<uint16_t, F<uint16_t>>;
    case Type::kS16:
      return binary<int16_t, F<int16_t>>;
    case Type::kU32:
      return binary<uint32_t, F<uint32_t>>;
    case Type::kS32:
      return binary<int32_t, F<int32_t>>;
    default:
      return nullptr;
  }
}
template <typename T, typename F>
void packed_binary(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  const T* b = context.row<T>(in.b);
  T* d = context.row<T>(in.d);
  for_lanes(context.mask, [=](uint32_t i) {
    d[2 * i] = F::apply(a[2 * i], b[2 * i]);
    d[2 * i + 1] = F::apply(a[2 * i + 1], b[2 * i + 1]);
  });
}
template <template <typename> class F>
Handler packed(Type type) {
  if (type == Type::kU16x2) return packed_binary<uint16_t, F<uint16_t>>;
  if (type == Type::kS16x2) return packed_binary<int16_t, F<int16_t>>;
  return nullptr;
}

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

struct PredicateAnd {
  static uint32_t apply(uint32_t a, uint32_t b) { return a & b; }
};
struct PredicateOr {
  static uint32_t apply(uint32_t a, uint32_t b) { return a | b; }
};
struct PredicateXor {
  static uint32_t apply(uint32_t a, uint32_t b) { return a ^ b; }
};

Handler logic(const Shape& s) {
  if (s.type == Type::kPred) {
    switch (s.op) {
      case Op::kAnd:
        return predicate_binary<PredicateAnd>;
      case Op::kOr:
        return predicate_binary<PredicateOr>;
      case Op::kXor:
        return predicate_binary<PredicateXor>;
      default:
        return predicate_not;
    }
  }
  switch (s.op) {
    case Op::kAnd:
      return unsigned_binary<And>(type_size(s.type));
    case Op::kOr:
      return unsigned_binary<Or>(type_size(s.type));
    default:
      return unsigned_binary<Xor>(type_size(s.type));
  }
}

template <template <typename> class F>
Handler unsigned_unary(uint32_t size) {
  return by_size<F>(
      size, []<typename T, template <typename> class G>() -> Handler { return unary<T, G<T>>; });
}
template <template <typename> class F>
Handler signed_unary(Type type) {
  switch (type) {
    case Type::kS16:
      return unary<int16_t, F<int16_t>>;
    case Type::kS32:
      return unary<int32_t, F<int32_t>>;
    case Type::kS64:
      return unary<int64_t, F<int64_t>>;
    default:
      return nullptr;
  }
}
template <bool Amount>
Handler find_bit(Type type) {
  switch (type) {
    case Type::kU32:
      return unary<uint32_t, Bfind<uint32_t, Amount>>;
    case Type::kS32:
      return unary<int32_t, Bfind<int32_t, Amount>>;
    case Type::kU64:
      return unary<uint64_t, Bfind<uint64_t, Amount>>;
    case Type::kS64:
      return unary<int64_t, Bfind<int64_t, Amount>>;
    default:
      return nullptr;
  }
}
Handler shift_right(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return shift<uint16_t, uint32_t, ShiftRight<uint16_t>>;
    case Type::kS16:
      return shift<int16_t, uint32_t, ShiftRight<int16_t>>;
    case Type::kB32:
    case Type::kU32:
      return shift<uint32_t, uint32_t, ShiftRight<uint32_t>>;
    case Type::kS32:
      return shift<int32_t, uint32_t, ShiftRight<int32_t>>;
    case Type::kB64:
    case Type::kU64:
      return shift<uint64_t, uint32_t, ShiftRight<uint64_t>>;
    case Type::kS64:
      return shift<int64_t, uint32_t, ShiftRight<int64_t>>;
    default:
      return nullptr;
  }
}
Handler extract(Type type) {
  switch (type) {
    case Type::kU32:
      return bfe<uint32_t>;
    case Type::kS32:
      return bfe<int32_t>;
    case Type::kU64:
      return bfe<uint64_t>;
    case Type::kS64:
      return bfe<int64_t>;
    default:
      return nullptr;
  }
}
Handler dot(const Shape& s) {
  const bool a = is_signed(s.type);
  const bool b = is_signed(s.type2);
  if (s.op == Op::kDp4a) {
    if (a) return b ? dot_product<true, true, 4> : dot_product<true, false, 4>;
    return b ? dot_product<false, true, 4> : dot_product<false, false, 4>;
  }
  if (a) return b ? dot_product<true, true, 2> : dot_product<true, false, 2>;
  return b ? dot_product<false, true, 2> : dot_product<false, false, 2>;
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
Handler funnel(const Shape& s) {
  const bool wrap = s.mode2 == Mode::kWrap;
  if (s.mode == Mode::kLeft) return wrap ? funnel_shift<true, true> : funnel_shift<true, false>;
  return wrap ? funnel_shift<false, true> : funnel_shift<false, false>;
}

}  // namespace

Handler integer_handler(const Shape& s) {
  const uint32_t size = type_size(s.type);
  const bool clamp = s.mode == Mode::kClamp;
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
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return logic(s);
    case Op::kNot:
      return s.type == Type::kPred ? predicate_not : unsigned_unary<Not>(size);
    case Op::kCnot:
      return unsigned_unary<Cnot>(size);
    case Op::kShl:
      return by_size<ShiftLeft>(size, []<typename T, template <typename> class G>() -> Handler {
        return shift<T, uint32_t, G<T>>;
      });
    case Op::kShr:
      return shift_right(s.type);
    case Op::kShf:
      return funnel(s);
    case Op::kLop3:
      return lop3;
    case Op::kPrmt:
      return prmt;
    case Op::kBfe:
      return extract(s.type);
    case Op::kBfi:
      return size == 4 ? bfi<uint32_t> : size == 8 ? bfi<uint64_t> : nullptr;
    case Op::kBfind:
      return s.shift_amount ? find_bit<true>(s.type) : find_bit<false>(s.type);
    case Op::kBrev:
      return size == 4 ? unary<uint32_t, Brev<uint32_t>> : unary<uint64_t, Brev<uint64_t>>;
    case Op::kPopc:
      return size == 4 ? unary<uint32_t, Popc<uint32_t>> : unary<uint64_t, Popc<uint64_t>>;
    case Op::kClz:
      return size == 4 ? unary<uint32_t, Clz<uint32_t>> : unary<uint64_t, Clz<uint64_t>>;
    case Op::kFns:
      return fns;
    case Op::kBmsk:
      return clamp ? binary<uint32_t, Bmsk<true>> : binary<uint32_t, Bmsk<false>>;
    case Op::kSzext:
      if (is_signed(s.type))
        return clamp ? binary<int32_t, Szext<int32_t, true>>
                     : binary<int32_t, Szext<int32_t, false>>;
      return clamp ? binary<uint32_t, Szext<uint32_t, true>>
                   : binary<uint32_t, Szext<uint32_t, false>>;
    case Op::kDp4a:
    case Op::kDp2a:
      return dot(s);
    case Op::kVideo4:
      return is_signed(s.type) ? absolute_difference4<true> : absolute_difference4<false>;
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
