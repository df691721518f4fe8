// Handlers of setp and set, and of what chooses between values: selp, slct, mov.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_narrow.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

// How the lanes' values are read: as they are, flushed, or widened from 16 bits.
template <typename T>
struct Plain {
  using Row = T;
  static T read(const T* row, uint32_t i) { return row[i]; }
};
struct Flushed {
  using Row = float;
  static float read(const float* row, uint32_t i) { return flush(row[i]); }
};
template <typename H>
struct Narrow {
  using Row = uint16_t;
  static float read(const uint16_t* row, uint32_t i) { return H::to_float(row[i]); }
};

template <Compare C, typename T>
[[gnu::always_inline]] inline bool holds(T a, T b) {
  const bool unordered = a != a || b != b;
  switch (C) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return std::is_floating_point_v<T> ? a < b || a > b : a != b;
    case Compare::kLt:
    case Compare::kLo:
      return a < b;
    case Compare::kLe:
    case Compare::kLs:
      return a <= b;
    case Compare::kGt:
    case Compare::kHi:
      return a > b;
    case Compare::kGe:
    case Compare::kHs:
      return a >= b;
    case Compare::kEqu:
      return unordered || a == b;
    case Compare::kNeu:
      return a != b;
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return !unordered;
    case Compare::kNan:
      return unordered;
    case Compare::kNone:
      break;
  }
  return false;
}

uint32_t combine(Combine how, uint32_t a, uint32_t b) {
  switch (how) {
    case Combine::kAnd:
      return a & b;
    case Combine::kOr:
      return a | b;
    case Combine::kXor:
      return a ^ b;
    default:
      return a;
  }
}

// d = (a cmp b) op c, p = !(a cmp b) op c; c is turned over before if option2 says so.
void finish(const Instruction& in, Context& context, uint32_t bits) {
  uint32_t other = 0;
  const auto how = static_cast<Combine>(in.option);
  if (how != Combine::kNone)
    other = *context.row<uint32_t>(in.c) ^ (in.option2 != 0 ? kAllLanes : 0);
  if (in.d != kNoOperand) set_predicate(context, in.d, combine(how, bits, other));
  if (in.p != kNoOperand) set_predicate(context, in.p, combine(how, ~bits, other));
}

template <typename R, Compare C>
void setp(const Instruction& in, Context& context) {
  const auto* a = context.row<typename R::Row>(in.a);
  const auto* b = context.row<typename R::Row>(in.b);
  finish(in, context,
         collect(context.mask, [=](uint32_t i) { return holds<C>(R::read(a, i), R::read(b, i)); }));
}

// Two 16-bit values a lane: d from the lower, p from the upper.
template <typename H, Compare C>
void setp_pair(const Instruction& in, Context& context) {
  const uint16_t* a = context.row<uint16_t>(in.a);
  const uint16_t* b = context.row<uint16_t>(in.b);
  const auto how = static_cast<Combine>(in.option);
  uint32_t other = 0;
  if (how != Combine::kNone)
    other = *context.row<uint32_t>(in.c) ^ (in.option2 != 0 ? kAllLanes : 0);
  for (uint32_t half = 0; half < 2; ++half) {
    const Operand to = half == 0 ? in.d : in.p;
    const uint32_t bits = collect(context.mask, [=](uint32_t i) {
      return holds<C>(H::to_float(a[2 * i + half]), H::to_float(b[2 * i + half]));
    });
    if (to != kNoOperand) set_predicate(context, to, combine(how, bits, other));
  }
}

template <typename R>
Handler by_compare(Compare compare) {
  constexpr bool kFloat = std::is_floating_point_v<decltype(R::read(nullptr, 0))>;
  switch (compare) {
    case Compare::kEq:
      return setp<R, Compare::kEq>;
    case Compare::kNe:
      return setp<R, Compare::kNe>;
    case Compare::kLt:
    case Compare::kLo:
      return setp<R, Compare::kLt>;
    case Compare::kLe:
    case Compare::kLs:
      return setp<R, Compare::kLe>;
    case Compare::kGt:
    case Compare::kHi:
      return setp<R, Compare::kGt>;
    case Compare::kGe:
    case Compare::kHs:
      return setp<R, Compare::kGe>;
    default:
      break;
  }
  if constexpr (kFloat) {
    switch (compare) {
      case Compare::kEqu:
        return setp<R, Compare::kEqu>;
      case Compare::kNeu:
        return setp<R, Compare::kNeu>;
      case Compare::kLtu:
        return setp<R, Compare::kLtu>;
      case Compare::kLeu:
        return setp<R, Compare::kLeu>;
      case Compare::kGtu:
        return setp<R, Compare::kGtu>;
      case Compare::kGeu:
        return setp<R, Compare::kGeu>;
      case Compare::kNum:
        return setp<R, Compare::kNum>;
      case Compare::kNan:
        return setp<R, Compare::kNan>;
      default:
        break;
    }
  }
  return nullptr;
}

template <typename H>
Handler pair_by_compare(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return setp_pair<H, Compare::kEq>;
    case Compare::kNe:
      return setp_pair<H, Compare::kNe>;
    case Compare::kLt:
      return setp_pair<H, Compare::kLt>;
    case Compare::kLe:
      return setp_pair<H, Compare::kLe>;
    case Compare::kGt:
      return setp_pair<H, Compare::kGt>;
    case Compare::kGe:
      return setp_pair<H, Compare::kGe>;
    case Compare::kEqu:
      return setp_pair<H, Compare::kEqu>;
    case Compare::kNeu:
      return setp_pair<H, Compare::kNeu>;
    case Compare::kLtu:
      return setp_pair<H, Compare::kLtu>;
    case Compare::kLeu:
      return setp_pair<H, Compare::kLeu>;
    case Compare::kGtu:
      return setp_pair<H, Compare::kGtu>;
    case Compare::kGeu:
      return setp_pair<H, Compare::kGeu>;
    case Compare::kNum:
      return setp_pair<H, Compare::kNum>;
    case Compare::kNan:
      return setp_pair<H, Compare::kNan>;
    default:
      return nullptr;
  }
}

template <typename U>
void selp(const Instruction& in, Context& context) {
  const U* a = context.row<U>(in.a);
  const U* b = context.row<U>(in.b);
  const uint32_t bits = *context.row<uint32_t>(in.c) ^ (in.option2 != 0 ? kAllLanes : 0);
  U* d = context.row<U>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = ((bits >> i) & 1) != 0 ? a[i] : b[i]; });
}

// option: 0 an integer decides, 1 a float, 2 a float that is flushed.
template <typename U>
void slct(const Instruction& in, Context& context) {
  const U* a = context.row<U>(in.a);
  const U* b = context.row<U>(in.b);
  const int32_t* c = context.row<int32_t>(in.c);
  const float* real = context.row<float>(in.c);
  U* d = context.row<U>(in.d);
  const uint8_t option = in.option;
  for_lanes(context.mask, [=](uint32_t i) {
    const bool first = option == 0 ? c[i] >= 0 : (option == 2 ? flush(real[i]) : real[i]) >= 0;
    d[i] = first ? a[i] : b[i];
  });
}

template <typename U>
void mov(const Instruction& in, Context& context) {
  const U* a = context.row<U>(in.a);
  U* d = context.row<U>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = a[i]; });
}
void mov_predicate(const Instruction& in, Context& context) {
  set_predicate(context, in.d, *context.row<uint32_t>(in.a));
}

struct Quad {
  uint64_t words[2];
};

}  // namespace

Handler compare_handler(const Shape& s) {
  switch (s.type) {
    case Type::kB16:
    case Type::kU16:
      return by_compare<Plain<uint16_t>>(s.compare);
    case Type::kS16:
      return by_compare<Plain<int16_t>>(s.compare);
    case Type::kB32:
    case Type::kU32:
      return by_compare<Plain<uint32_t>>(s.compare);
    case Type::kS32:
      return by_compare<Plain<int32_t>>(s.compare);
    case Type::kB64:
    case Type::kU64:
      return by_compare<Plain<uint64_t>>(s.compare);
    case Type::kS64:
      return by_compare<Plain<int64_t>>(s.compare);
    case Type::kF32:
      return s.ftz ? by_compare<Flushed>(s.compare) : by_compare<Plain<float>>(s.compare);
    case Type::kF64:
      return by_compare<Plain<double>>(s.compare);
    case Type::kF16:
      return by_compare<Narrow<Half16>>(s.compare);
    case Type::kBF16:
      return by_compare<Narrow<Bfloat16>>(s.compare);
    case Type::kF16x2:
      return pair_by_compare<Half16>(s.compare);
    case Type::kBF16x2:
      return pair_by_compare<Bfloat16>(s.compare);
    default:
      return nullptr;
  }
}

Handler select_handler(const Shape& s) {
  const uint32_t size = type_size(s.type);
  if (s.op == Op::kSelp) {
    return size <= 2   ? selp<uint16_t>
           : size == 4 ? selp<uint32_t>
           : size == 8 ? selp<uint64_t>
                       : nullptr;
  }
  if (s.op == Op::kSlct) {
    return size <= 2   ? slct<uint16_t>
           : size == 4 ? slct<uint32_t>
           : size == 8 ? slct<uint64_t>
                       : nullptr;
  }
  if (s.type == Type::kPred) return mov_predicate;
  switch (size) {
    case 1:
    case 2:
      return mov<uint16_t>;
    case 4:
      return mov<uint32_t>;
    case 8:
      return mov<uint64_t>;
    case 16:
      return mov<Quad>;
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
