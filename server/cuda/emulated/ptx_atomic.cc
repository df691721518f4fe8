// Handlers of atom and red.
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "server/cuda/emulated/ptx_rounding.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

// The address of a lane; a null pointer ends the instruction.
std::byte* target(const Instruction& in, Context& context, uint32_t lane, uint32_t size) {
  const auto space = static_cast<Space>(in.option2);
  uint64_t address = static_cast<uint64_t>(in.immediate);
  if (in.a != kNoOperand) {
    address +=
        in.option == 4 ? context.row<uint32_t>(in.a)[lane] : context.row<uint64_t>(in.a)[lane];
  }
  return resolve_address(context, space, address, size, size, lane, in.site);
}

template <typename U, typename F>
U exchange(std::byte* at, F&& next) {
  auto* const word = reinterpret_cast<U*>(at);
  U before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &before, next(before), true, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED)) {
  }
  return before;
}

template <typename U, typename F>
void for_targets(const Instruction& in, Context& context, F&& f) {
  context.waits = true;
  context.stored = true;
  U* const d = in.d == kNoOperand ? nullptr : context.row<U>(in.d);
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    std::byte* const at = target(in, context, i, sizeof(U));
    if (at == nullptr) return;
    const U before = f(at, i);
    if (d != nullptr) d[i] = before;
  }
}

template <typename T, Combine C>
void integer(const Instruction& in, Context& context) {
  using U = std::make_unsigned_t<T>;
  const U* const b = context.row<U>(in.b);
  for_targets<U>(in, context, [=](std::byte* at, uint32_t i) -> U {
    auto* const word = reinterpret_cast<U*>(at);
    const U value = b[i];
    if constexpr (C == Combine::kAdd) return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
    if constexpr (C == Combine::kAnd) return __atomic_fetch_and(word, value, __ATOMIC_ACQ_REL);
    if constexpr (C == Combine::kOr) return __atomic_fetch_or(word, value, __ATOMIC_ACQ_REL);
    if constexpr (C == Combine::kXor) return __atomic_fetch_xor(word, value, __ATOMIC_ACQ_REL);
    if constexpr (C == Combine::kExch) return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
    return exchange<U>(at, [value](U before) -> U {
      const T x = static_cast<T>(before);
      const T y = static_cast<T>(value);
      if constexpr (C == Combine::kMin) return static_cast<U>(y < x ? y : x);
      if constexpr (C == Combine::kMax) return static_cast<U>(y > x ? y : x);
      if constexpr (C == Combine::kInc) return before >= value ? U{0} : static_cast<U>(before + 1);
      return before == 0 || before > value ? value : static_cast<U>(before - 1);  // kDec
    });
  });
}

template <typename U>
void compare_and_swap(const Instruction& in, Context& context) {
  const U* const b = context.row<U>(in.b);
  const U* const c = context.row<U>(in.c);
  for_targets<U>(in, context, [=](std::byte* at, uint32_t i) -> U {
    U expected = b[i];
    __atomic_compare_exchange_n(reinterpret_cast<U*>(at), &expected, c[i], false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
    return expected;
  });
}

template <typename T, typename U>
void add_float(const Instruction& in, Context& context) {
  const T* const b = context.row<T>(in.b);
  for_targets<U>(in, context, [=](std::byte* at, uint32_t i) -> U {
    return exchange<U>(at,
                       [=](U before) { return std::bit_cast<U>(std::bit_cast<T>(before) + b[i]); });
  });
}

// One or two 16-bit floats: `U` is uint16_t or uint32_t.
template <typename U, const Format& F, Combine C>
void narrow(const Instruction& in, Context& context) {
  const U* const b = context.row<U>(in.b);
  for_targets<U>(in, context, [=](std::byte* at, uint32_t i) -> U {
    return exchange<U>(at, [=](U before) {
      U after = 0;
      for (uint32_t shift = 0; shift < 8 * sizeof(U); shift += 16) {
        const double x = expand(F, (before >> shift) & 0xffff);
        const double y = expand(F, static_cast<uint32_t>(b[i] >> shift) & 0xffff);
        const double r = C == Combine::kAdd   ? add_to_odd(x, y)
                         : C == Combine::kMin ? std::fmin(x, y)
                                              : std::fmax(x, y);
        after = static_cast<U>(after | static_cast<U>(round_to(F, r, Rounding::kNearest)) << shift);
      }
      return after;
    });
  });
}

struct Quad {
  uint64_t words[2];
};

// 16 bytes at once: among themselves under a lock.
std::mutex& quad_mutex(const std::byte* at) {
  static std::mutex mutexes[64];
  return mutexes[(reinterpret_cast<uintptr_t>(at) >> 4) & 63];
}

template <bool Swap>
void quad(const Instruction& in, Context& context) {
  const Quad* const b = context.row<Quad>(in.b);
  const Quad* const c = Swap ? b : context.row<Quad>(in.c);
  for_targets<Quad>(in, context, [=](std::byte* at, uint32_t i) {
    const std::lock_guard lock(quad_mutex(at));
    Quad before;
    std::memcpy(&before, at, sizeof(Quad));
    const bool equal = std::memcmp(&before, &b[i], sizeof(Quad)) == 0;
    if (Swap || equal) std::memcpy(at, &c[i], sizeof(Quad));
    return before;
  });
}

template <typename T>
Handler integer_atomic(Combine combine) {
  switch (combine) {
    case Combine::kAdd:
      return integer<T, Combine::kAdd>;
    case Combine::kMin:
      return integer<T, Combine::kMin>;
    case Combine::kMax:
      return integer<T, Combine::kMax>;
    case Combine::kAnd:
      return integer<T, Combine::kAnd>;
    case Combine::kOr:
      return integer<T, Combine::kOr>;
    case Combine::kXor:
      return integer<T, Combine::kXor>;
    case Combine::kInc:
      return integer<T, Combine::kInc>;
    case Combine::kDec:
      return integer<T, Combine::kDec>;
    case Combine::kExch:
      return integer<T, Combine::kExch>;
    case Combine::kCas:
      return compare_and_swap<std::make_unsigned_t<T>>;
    default:
      return nullptr;
  }
}

template <typename U, const Format& F>
Handler narrow_atomic(Combine combine) {
  switch (combine) {
    case Combine::kAdd:
      return narrow<U, F, Combine::kAdd>;
    case Combine::kMin:
      return narrow<U, F, Combine::kMin>;
    case Combine::kMax:
      return narrow<U, F, Combine::kMax>;
    default:
      return nullptr;
  }
}

}  // namespace

Handler atomic_handler(const Shape& s) {
  switch (s.type) {
    case Type::kB16:
    case Type::kU16:
      return integer_atomic<uint16_t>(s.combine);
    case Type::kB32:
    case Type::kU32:
      return integer_atomic<uint32_t>(s.combine);
    case Type::kS32:
      return integer_atomic<int32_t>(s.combine);
    case Type::kB64:
    case Type::kU64:
      return integer_atomic<uint64_t>(s.combine);
    case Type::kS64:
      return integer_atomic<int64_t>(s.combine);
    case Type::kF32:
      return s.combine == Combine::kAdd ? add_float<float, uint32_t> : nullptr;
    case Type::kF64:
      return s.combine == Combine::kAdd ? add_float<double, uint64_t> : nullptr;
    case Type::kF16:
      return narrow_atomic<uint16_t, kHalfFormat>(s.combine);
    case Type::kBF16:
      return narrow_atomic<uint16_t, kBfloatFormat>(s.combine);
    case Type::kF16x2:
      return narrow_atomic<uint32_t, kHalfFormat>(s.combine);
    case Type::kBF16x2:
      return narrow_atomic<uint32_t, kBfloatFormat>(s.combine);
    case Type::kB128:
      return s.combine == Combine::kExch  ? quad<true>
             : s.combine == Combine::kCas ? quad<false>
                                          : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace rgpu::server::ptx
