// Handlers of logic, shifts, bit fields and bytes.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_integer_rows.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

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
template <template <typename> class F>
Handler b_unary(uint32_t size) {
  return size == 4   ? unary<uint32_t, F<uint32_t>>
         : size == 8 ? unary<uint64_t, F<uint64_t>>
                     : nullptr;
}
Handler funnel(const Shape& s) {
  const bool wrap = s.mode2 == Mode::kWrap;
  if (s.mode == Mode::kLeft) return wrap ? funnel_shift<true, true> : funnel_shift<true, false>;
  return wrap ? funnel_shift<false, true> : funnel_shift<false, false>;
}

}  // namespace

Handler bits_handler(const Shape& s) {
  const uint32_t size = type_size(s.type);
  const bool clamp = s.mode == Mode::kClamp;
  switch (s.op) {
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
      return size == 4 ? funnel(s) : nullptr;
    case Op::kLop3:
      return lop3;
    case Op::kPrmt:
      return size == 4 ? prmt : nullptr;
    case Op::kBfe:
      return extract(s.type);
    case Op::kBfi:
      return size == 4 ? bfi<uint32_t> : size == 8 ? bfi<uint64_t> : nullptr;
    case Op::kBfind:
      return s.shift_amount ? find_bit<true>(s.type) : find_bit<false>(s.type);
    case Op::kBrev:
      return b_unary<Brev>(size);
    case Op::kPopc:
      return b_unary<Popc>(size);
    case Op::kClz:
      return b_unary<Clz>(size);
    case Op::kFns:
      return fns;
    case Op::kBmsk:
      return clamp ? binary<uint32_t, Bmsk<true>> : binary<uint32_t, Bmsk<false>>;
    case Op::kSzext:
      if (size != 4) return nullptr;
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
