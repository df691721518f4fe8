// Handlers of what the lanes of a warp do together. The warp has made sure that the members are
// here.
#include <bit>
#include <cstring>

#include "server/cuda/emulated/ptx_lanes.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

using generic::set_predicate;

template <typename F>
void each(uint32_t mask, F&& f) {
  for (uint32_t m = mask; m != 0; m &= m - 1) f(static_cast<uint32_t>(std::countr_zero(m)));
}

// Calls f(members) once for each group of lanes that name the same mask.
template <typename F>
void each_group(const Instruction& in, const Context& context, F&& f) {
  const uint32_t* masks = context.row<uint32_t>(in.e);
  for (uint32_t left = context.mask; left != 0;) {
    const uint32_t mask = masks[std::countr_zero(left)];
    uint32_t members = 0;
    each(left, [&](uint32_t i) { members |= (masks[i] == mask ? 1U : 0U) << i; });
    f(members);
    left &= ~members;
  }
}

void shuffle(const Instruction& in, Context& context) {
  uint32_t values[kLanes];
  std::memcpy(values, context.row<uint32_t>(in.a), sizeof(values));
  const uint32_t* b = context.row<uint32_t>(in.b);
  const uint32_t* c = context.row<uint32_t>(in.c);
  uint32_t* const d = in.d == kNoOperand ? nullptr : context.row<uint32_t>(in.d);
  const auto mode = static_cast<Mode>(in.option);
  uint32_t inside = 0;
  each(context.mask, [&](uint32_t lane) {
    const auto by = static_cast<int32_t>(b[lane] & 31);
    const auto clamp = static_cast<int32_t>(c[lane] & 31);
    const auto segment = static_cast<int32_t>((c[lane] >> 8) & 31);
    const auto at = static_cast<int32_t>(lane);
    const int32_t last = (at & segment) | (clamp & ~segment);
    const int32_t first = at & segment;
    int32_t from = at;
    bool valid = false;
    switch (mode) {
      case Mode::kUp:
        from = at - by;
        valid = from >= last;
        break;
      case Mode::kDown:
        from = at + by;
        valid = from <= last;
        break;
      case Mode::kBfly:
        from = at ^ by;
        valid = from <= last;
        break;
      default:
        from = first | (by & ~segment);
        valid = from <= last;
        break;
    }
    if (!valid) from = at;
    inside |= (valid ? 1U : 0U) << lane;
    if (d != nullptr) d[lane] = values[from & 31];
  });
  if (in.p != kNoOperand) set_predicate(context, in.p, inside);
}

// d: predicate, or 32 bits for ballot. a: predicate, turned over if option2.
void vote(const Instruction& in, Context& context) {
  const uint32_t truth = *context.row<uint32_t>(in.a) ^ (in.option2 != 0 ? kAllLanes : 0);
  const auto mode = static_cast<Mode>(in.option);
  uint32_t answers = 0;
  each_group(in, context, [&](uint32_t members) {
    const uint32_t yes = truth & members;
    if (mode == Mode::kBallot) {
      each(members, [&](uint32_t i) { context.row<uint32_t>(in.d)[i] = yes; });
      return;
    }
    const bool holds = mode == Mode::kAll   ? yes == members
                       : mode == Mode::kAny ? yes != 0
                                            : yes == members || yes == 0;
    if (holds) answers |= members;
  });
  if (mode != Mode::kBallot) set_predicate(context, in.d, answers);
}

template <typename T>
void match(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  uint32_t all_same = 0;
  each_group(in, context, [&](uint32_t members) {
    uint32_t same[kLanes];
    each(members, [&](uint32_t i) {
      same[i] = 0;
      each(members, [&](uint32_t k) { same[i] |= (a[i] == a[k] ? 1U : 0U) << k; });
    });
    const bool all = same[std::countr_zero(members)] == members;
    if (all) all_same |= members;
    each(members, [&](uint32_t i) {
      const uint32_t result = static_cast<Mode>(in.option) == Mode::kAny ? same[i]
                              : all                                      ? members
                                                                         : 0;
      context.row<uint32_t>(in.d)[i] = result;
    });
  });
  if (in.p != kNoOperand) set_predicate(context, in.p, all_same);
}

template <typename T>
T combined(Combine combine, T x, T y) {
  switch (combine) {
    case Combine::kAdd:
      return static_cast<T>(static_cast<uint32_t>(x) + static_cast<uint32_t>(y));
    case Combine::kMin:
      return y < x ? y : x;
    case Combine::kMax:
      return y > x ? y : x;
    case Combine::kAnd:
      return static_cast<T>(static_cast<uint32_t>(x) & static_cast<uint32_t>(y));
    case Combine::kOr:
      return static_cast<T>(static_cast<uint32_t>(x) | static_cast<uint32_t>(y));
    default:
      return static_cast<T>(static_cast<uint32_t>(x) ^ static_cast<uint32_t>(y));
  }
}

template <typename T>
void reduce(const Instruction& in, Context& context) {
  const T* a = context.row<T>(in.a);
  each_group(in, context, [&](uint32_t members) {
    T result = a[std::countr_zero(members)];
    each(members & (members - 1),
         [&](uint32_t i) { result = combined(static_cast<Combine>(in.option), result, a[i]); });
    each(members, [&](uint32_t i) { context.row<T>(in.d)[i] = result; });
  });
}

// option bit 0: .abs, bit 1: .NaN
void reduce_float(const Instruction& in, Context& context) {
  const float* a = context.row<float>(in.a);
  const bool max = static_cast<Combine>(in.option) == Combine::kMax;
  const bool absolute = (in.option2 & 1) != 0;
  const bool nan_wins = (in.option2 & 2) != 0;
  each_group(in, context, [&](uint32_t members) {
    float result = std::numeric_limits<float>::quiet_NaN();
    bool saw_nan = false;
    each(members, [&](uint32_t i) {
      const float x = absolute ? std::abs(a[i]) : a[i];
      saw_nan = saw_nan || x != x;
      result = max ? std::fmax(result, x) : std::fmin(result, x);
    });
    if (saw_nan && nan_wins) result = std::numeric_limits<float>::quiet_NaN();
    each(members, [&](uint32_t i) { context.row<float>(in.d)[i] = generic::canonical(result); });
  });
}

// d: the lowest member, p: whether it is this lane.
void elect(const Instruction& in, Context& context) {
  uint32_t chosen = 0;
  each_group(in, context, [&](uint32_t members) {
    const auto leader = static_cast<uint32_t>(std::countr_zero(members));
    chosen |= 1U << leader;
    if (in.d != kNoOperand)
      each(members, [&](uint32_t i) { context.row<uint32_t>(in.d)[i] = leader; });
  });
  if (in.p != kNoOperand) set_predicate(context, in.p, chosen);
}

void active_mask(const Instruction& in, Context& context) {
  each(context.mask, [&](uint32_t i) { context.row<uint32_t>(in.d)[i] = context.mask; });
}

}  // namespace

Handler shuffle_handler(const Shape&) { return shuffle; }
Handler vote_handler(const Shape&) { return vote; }
Handler match_handler(const Shape& s) {
  return type_size(s.type) == 8   ? match<uint64_t>
         : type_size(s.type) == 4 ? match<uint32_t>
                                  : nullptr;
}
Handler reduce_handler(const Shape& s) {
  switch (s.type) {
    case Type::kS32:
      return reduce<int32_t>;
    case Type::kB32:
    case Type::kU32:
      return reduce<uint32_t>;
    case Type::kF32:
      return reduce_float;
    default:
      return nullptr;
  }
}
Handler elect_handler() { return elect; }
Handler active_mask_handler() { return active_mask; }

}  // namespace rgpu::server::ptx
