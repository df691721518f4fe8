// Handlers of ld and st. Vectors are `extra` operands; one operand is in `d` or `b`.
//
// Lanes touch memory as other threads of the machine do: each element by one relaxed access, or by
// one that acquires or releases where the instruction says so.
#include "server/cuda/emulated/ptx_handlers.h"
#include "server/cuda/emulated/ptx_lanes.h"

namespace rgpu::server::ptx::RGPU_PTX_VARIANT {
namespace {

// Instruction::option
constexpr uint8_t kOrdered = 1;   // Acquires or releases.
constexpr uint8_t kVolatile = 2;  // Also relaxed: one who waits looks so.

struct Quad {
  uint64_t words[2];
};

template <typename T>
[[gnu::always_inline]] inline T fetch(const std::byte* from) {
  if constexpr (sizeof(T) > 8) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  } else {
    return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
  }
}
template <typename T>
[[gnu::always_inline]] inline void put(std::byte* to, T value) {
  if constexpr (sizeof(T) > 8) {
    std::memcpy(to, &value, sizeof(T));
  } else {
    __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELAXED);
  }
}

// A vector is touched as a whole, up to 16 bytes at once: programs publish a value and its flag as
// the two elements of one.
typedef uint64_t Pair __attribute__((vector_size(16)));
template <uint32_t Size>
using Whole = std::conditional_t<
    Size % 16 == 0, Pair,
    std::conditional_t<
        Size == 8, uint64_t,
        std::conditional_t<Size == 4, uint32_t, std::conditional_t<Size == 2, uint16_t, uint8_t>>>>;

template <uint32_t Size>
[[gnu::always_inline]] inline void fetch_whole(std::byte* to, const std::byte* from) {
  using W = Whole<Size>;
  if (reinterpret_cast<uintptr_t>(from) % sizeof(W) != 0) {  // A block's or a thread's own memory.
    std::memcpy(to, from, Size);
    return;
  }
  for (uint32_t at = 0; at < Size; at += sizeof(W)) {
    const W value = *reinterpret_cast<const volatile W*>(from + at);
    std::memcpy(to + at, &value, sizeof value);
  }
}
template <uint32_t Size>
[[gnu::always_inline]] inline void put_whole(std::byte* to, const std::byte* from) {
  using W = Whole<Size>;
  if (reinterpret_cast<uintptr_t>(to) % sizeof(W) != 0) {
    std::memcpy(to, from, Size);
    return;
  }
  for (uint32_t at = 0; at < Size; at += sizeof(W)) {
    W value;
    std::memcpy(&value, from + at, sizeof value);
    *reinterpret_cast<volatile W*>(to + at) = value;
  }
}

// Calls f(lane, pointer) for each lane, up to the first that may not access its `size` bytes.
// S is kShared, kLocal or, for all that has an address of this process, kGeneric.
template <Space S, typename F>
[[gnu::always_inline]] inline void access(const Instruction& in, Context& context, uint32_t size,
                                          F&& f) {
  using Address = std::conditional_t<S == Space::kShared, uint32_t, uint64_t>;
  const Address* a = in.a == kNoOperand ? nullptr : context.row<Address>(in.a);
  const auto offset = static_cast<uint64_t>(in.immediate);
  const uint64_t alignment = size - 1;
  std::byte* const shared = context.shared;
  uint64_t begin = 0;
  uint64_t limit = 0;  // Of what begins within the interval, relative to its begin.
  bool some = false;
  if constexpr (S == Space::kShared) {
    some = context.shared_size >= size;
    limit = context.shared_size - size;
  } else if constexpr (S == Space::kLocal) {
    some = context.local_stride >= size;
    limit = context.local_stride - size;
  } else {
    const Memory::Interval& interval = (*context.intervals)[in.site];
    begin = interval.begin;
    some = interval.end - begin >= size;
    limit = interval.end - begin - size;
  }
  const auto one = [&](uint32_t i) {
    uint64_t address = offset;
    if (a != nullptr) address += a[i];
    if constexpr (S == Space::kShared) address &= 0xffff'ffff;
    if constexpr (S == Space::kLocal) address += a == nullptr ? context.frame_local : 0;
    const uint64_t within = address - begin;
    std::byte* pointer = nullptr;
    if (some && within <= limit && (address & alignment) == 0) [[likely]] {
      if constexpr (S == Space::kShared) {
        pointer = shared + within;
      } else if constexpr (S == Space::kLocal) {
        pointer = context.local + i * context.local_stride + within;
      } else {
        pointer = reinterpret_cast<std::byte*>(address);
      }
    } else {
      pointer =
          resolve_address(context, static_cast<Space>(in.option2), address, size, size, i, in.site);
      if (pointer == nullptr) return false;
      if constexpr (S == Space::kGeneric) {
        const Memory::Interval& interval = (*context.intervals)[in.site];
        begin = interval.begin;
        some = interval.end - begin >= size;
        limit = interval.end - begin - size;
      }
    }
    f(i, pointer);
    return true;
  };
  if (context.mask == kAllLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (!one(i)) return;
    }
  } else {
    for (uint32_t m = context.mask; m != 0; m &= m - 1) {
      if (!one(static_cast<uint32_t>(std::countr_zero(m)))) return;
    }
  }
}

void after_load(const Instruction& in, Context& context) {
  if ((in.option & kOrdered) != 0) thread_fence(__ATOMIC_ACQUIRE);
  if ((in.option & kVolatile) != 0) context.waits = true;
}

template <Space S, typename M, typename R>
void load(const Instruction& in, Context& context) {
  R* d = context.row<R>(in.d);
  access<S>(in, context, sizeof(M), [=](uint32_t i, const std::byte* from) {
    if constexpr (sizeof(M) > 8) {
      d[i] = fetch<M>(from);
    } else {
      d[i] = static_cast<R>(fetch<M>(from));
    }
  });
  if (in.option != 0) after_load(in, context);
}

template <Space S, typename M, typename R, uint32_t N>
void load_vector(const Instruction& in, Context& context) {
  R* rows[N];
  const Operand* operands = context.extra(in);
  for (uint32_t k = 0; k < N; ++k) rows[k] = context.row<R>(operands[k]);
  access<S>(in, context, N * sizeof(M), [&](uint32_t i, const std::byte* from) {
    M elements[N];
    fetch_whole<N * sizeof(M)>(reinterpret_cast<std::byte*>(elements), from);
    for (uint32_t k = 0; k < N; ++k) rows[k][i] = static_cast<R>(elements[k]);
  });
  if (in.option != 0) after_load(in, context);
}

template <Space S, typename M, typename R>
void store(const Instruction& in, Context& context) {
  const R* b = context.row<R>(in.b);
  if ((in.option & kOrdered) != 0) thread_fence(__ATOMIC_RELEASE);
  access<S>(in, context, sizeof(M), [=](uint32_t i, std::byte* to) {
    if constexpr (sizeof(M) > 8) {
      put<M>(to, b[i]);
    } else {
      put<M>(to, static_cast<M>(b[i]));
    }
  });
  context.stored = true;
}

template <Space S, typename M, typename R, uint32_t N>
void store_vector(const Instruction& in, Context& context) {
  const R* rows[N];
  const Operand* operands = context.extra(in);
  for (uint32_t k = 0; k < N; ++k) rows[k] = context.row<R>(operands[k]);
  if ((in.option & kOrdered) != 0) thread_fence(__ATOMIC_RELEASE);
  access<S>(in, context, N * sizeof(M), [&](uint32_t i, std::byte* to) {
    M elements[N];
    for (uint32_t k = 0; k < N; ++k) elements[k] = static_cast<M>(rows[k][i]);
    put_whole<N * sizeof(M)>(to, reinterpret_cast<const std::byte*>(elements));
  });
  context.stored = true;
}

// A kernel's parameter at a fixed place: the same for all lanes. The decoder checked the place.
template <typename M, typename R>
void load_parameter(const Instruction& in, Context& context) {
  M value;
  std::memcpy(&value, context.parameters + in.immediate, sizeof(M));
  R* d = context.row<R>(in.d);
  for_lanes(context.mask, [=](uint32_t i) { d[i] = static_cast<R>(value); });
}
template <typename M, typename R, uint32_t N>
void load_parameter_vector(const Instruction& in, Context& context) {
  const Operand* operands = context.extra(in);
  for (uint32_t k = 0; k < N; ++k) {
    M value;
    std::memcpy(&value, context.parameters + in.immediate + k * sizeof(M), sizeof(M));
    R* d = context.row<R>(operands[k]);
    for_lanes(context.mask, [=](uint32_t i) { d[i] = static_cast<R>(value); });
  }
}

enum class Action { kLoad, kStore, kParameter };

template <Action A, Space S, typename M, typename R, uint32_t N>
Handler pick() {
  if constexpr (A == Action::kStore) {
    if constexpr (N == 1) return store<S, M, R>;
    if constexpr (N != 1) return store_vector<S, M, R, N>;
  } else if constexpr (A == Action::kParameter) {
    if constexpr (N == 1) return load_parameter<M, R>;
    if constexpr (N != 1) return load_parameter_vector<M, R, N>;
  } else {
    if constexpr (N == 1) return load<S, M, R>;
    if constexpr (N != 1) return load_vector<S, M, R, N>;
  }
}

template <Action A, Space S, typename M, typename R>
Handler by_vector(uint32_t vector) {
  switch (vector) {
    case 1:
      return pick<A, S, M, R, 1>();
    case 2:
      return pick<A, S, M, R, 2>();
    case 4:
      return pick<A, S, M, R, 4>();
    case 8:
      if constexpr (sizeof(M) == 4 && sizeof(R) == 4) return pick<A, S, M, R, 8>();
      return nullptr;
    default:
      return nullptr;
  }
}

// A register may be wider than what is loaded into it or stored from it.
template <Action A, Space S, typename M>
Handler by_register(uint32_t register_size, uint32_t vector) {
  using Signed = std::is_signed<M>;
  if (register_size < sizeof(M)) return nullptr;
  switch (register_size) {
    case 2:
      if constexpr (sizeof(M) <= 2) {
        return by_vector<A, S, M, std::conditional_t<Signed::value, int16_t, uint16_t>>(vector);
      }
      return nullptr;
    case 4:
      if constexpr (sizeof(M) <= 4) {
        return by_vector<A, S, M, std::conditional_t<Signed::value, int32_t, uint32_t>>(vector);
      }
      return nullptr;
    case 8:
      return by_vector<A, S, M, std::conditional_t<Signed::value, int64_t, uint64_t>>(vector);
    default:
      return nullptr;
  }
}

template <Action A, Space S>
Handler by_type(const Shape& s, uint32_t register_size) {
  const bool sign = is_signed(s.type);
  switch (type_size(s.type)) {
    case 1:
      return sign ? by_register<A, S, int8_t>(register_size, s.vector)
                  : by_register<A, S, uint8_t>(register_size, s.vector);
    case 2:
      return sign ? by_register<A, S, int16_t>(register_size, s.vector)
                  : by_register<A, S, uint16_t>(register_size, s.vector);
    case 4:
      return sign ? by_register<A, S, int32_t>(register_size, s.vector)
                  : by_register<A, S, uint32_t>(register_size, s.vector);
    case 8:
      return by_register<A, S, uint64_t>(register_size, s.vector);
    case 16:
      return register_size == 16 && s.vector == 1 ? pick<A, S, Quad, Quad, 1>() : nullptr;
    default:
      return nullptr;
  }
}

template <Action A>
Handler by_space(const Shape& s, uint32_t register_size) {
  switch (s.space) {
    case Space::kShared:
      return by_type<A, Space::kShared>(s, register_size);
    case Space::kLocal:
      return by_type<A, Space::kLocal>(s, register_size);
    default:
      return by_type<A, Space::kGeneric>(s, register_size);
  }
}

}  // namespace

Handler load_handler(const Shape& s, uint32_t register_size) {
  return by_space<Action::kLoad>(s, register_size);
}

Handler parameter_handler(const Shape& s, uint32_t register_size) {
  return by_type<Action::kParameter, Space::kParam>(s, register_size);
}

Handler store_handler(const Shape& s, uint32_t register_size) {
  return by_space<Action::kStore>(s, register_size);
}

}  // namespace rgpu::server::ptx::RGPU_PTX_VARIANT
