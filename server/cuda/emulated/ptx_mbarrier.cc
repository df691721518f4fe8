// Handlers of mbarrier: a barrier that is a word of memory.
//
// Bits 0 to 19: arrivals that are missing in this phase; 20 to 39: of each phase; 40 and up: how
// many phases are complete. The state that arrive returns is the word as it was.
#include <bit>

#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint64_t kCountMask = 0xf'ffff;
constexpr uint32_t kExpectedShift = 20;
constexpr uint32_t kPhaseShift = 40;

uint64_t* word(const Instruction& in, Context& context, uint32_t lane) {
  const uint64_t offset = static_cast<uint64_t>(in.immediate);
  const auto space = static_cast<Space>(in.option2);
  const uint64_t address = space == Space::kShared ? context.row<uint32_t>(in.a)[lane] + offset
                                                   : context.row<uint64_t>(in.a)[lane] + offset;
  return reinterpret_cast<uint64_t*>(resolve_address(context, space, address, 8, 8, lane, in.site));
}

template <typename F>
void each_word(const Instruction& in, Context& context, F&& f) {
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    uint64_t* const at = word(in, context, lane);
    if (at == nullptr) return;
    f(at, lane);
  }
}

void initialize(const Instruction& in, Context& context) {
  const uint32_t* count = context.row<uint32_t>(in.b);
  each_word(in, context, [&](uint64_t* at, uint32_t lane) {
    const uint64_t value = count[lane] & kCountMask;
    __atomic_store_n(at, value << kExpectedShift | value, __ATOMIC_RELEASE);
  });
}

uint64_t arrived(uint64_t before, uint64_t count, bool drop) {
  uint64_t expected = before >> kExpectedShift & kCountMask;
  uint64_t phase = before >> kPhaseShift;
  if (drop) expected = (expected - count) & kCountMask;
  uint64_t missing = ((before & kCountMask) - count) & kCountMask;
  if (missing == 0) {
    missing = expected;
    ++phase;
  }
  return phase << kPhaseShift | expected << kExpectedShift | missing;
}

// b: how many arrive, or none: one. option bit 0: arrive_drop.
void arrive(const Instruction& in, Context& context) {
  const uint32_t* count = in.b == kNoOperand ? nullptr : context.row<uint32_t>(in.b);
  uint64_t* const d = in.d == kNoOperand ? nullptr : context.row<uint64_t>(in.d);
  context.stored = true;
  each_word(in, context, [&](uint64_t* at, uint32_t lane) {
    const uint64_t many = count == nullptr ? 1 : count[lane];
    uint64_t before = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(at, &before, arrived(before, many, (in.option & 1) != 0),
                                        true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    if (d != nullptr) d[lane] = before;
  });
}

// d: whether the phase of the state in b is complete; option bit 0: b is a phase's parity.
void test_wait(const Instruction& in, Context& context) {
  uint32_t complete = 0;
  context.waits = true;
  each_word(in, context, [&](uint64_t* at, uint32_t lane) {
    const uint64_t phase = __atomic_load_n(at, __ATOMIC_ACQUIRE) >> kPhaseShift;
    const bool done = (in.option & 1) != 0
                          ? (phase & 1) != (context.row<uint32_t>(in.b)[lane] & 1)
                          : phase != context.row<uint64_t>(in.b)[lane] >> kPhaseShift;
    complete |= (done ? 1U : 0U) << lane;
  });
  uint32_t* const d = context.row<uint32_t>(in.d);
  *d = (*d & ~context.mask) | complete;
}

void pending_count(const Instruction& in, Context& context) {
  const uint64_t* a = context.row<uint64_t>(in.a);
  uint32_t* d = context.row<uint32_t>(in.d);
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    d[lane] = static_cast<uint32_t>(a[lane] & kCountMask);
  }
}

}  // namespace

Handler barrier_word_handler(BarrierWord what) {
  switch (what) {
    case BarrierWord::kInitialize:
      return initialize;
    case BarrierWord::kArrive:
      return arrive;
    case BarrierWord::kTestWait:
      return test_wait;
    case BarrierWord::kPendingCount:
      return pending_count;
  }
  return nullptr;
}

}  // namespace rgpu::server::ptx
