// Loops of integer operators over rows, and the choice of a width.
#pragma once

#include <utility>

#include "server/cuda/emulated/ptx_lanes.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {

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

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
