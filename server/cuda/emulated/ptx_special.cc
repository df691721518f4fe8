// Special registers, addresses that depend on the launch, moves between wide and narrow registers.
#include <bit>
#include <chrono>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "server/cuda/emulated/ptx_lanes.h"
#include "server/cuda/emulated/ptx_run.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

template <typename F>
void each(uint32_t mask, F&& f) {
  for (uint32_t m = mask; m != 0; m &= m - 1) f(static_cast<uint32_t>(std::countr_zero(m)));
}

template <typename T>
void fill(const Instruction& in, Context& context, T value) {
  T* d = context.row<T>(in.d);
  generic::for_lanes(context.mask, [=](uint32_t i) { d[i] = value; });
}

enum Selector : int64_t {
  kZero,
  kOne,
  kThreadX,
  kThreadY,
  kThreadZ,
  kBlockSizeX,
  kBlockSizeY,
  kBlockSizeZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kGridX,
  kGridY,
  kGridZ,
  kLane,
  kWarp,
  kWarpCount,
  kProcessor,
  kProcessorCount,
  kGridId,
  kMaskEq,
  kMaskLe,
  kMaskLt,
  kMaskGe,
  kMaskGt,
  kClock,
  kClockHigh,
  kTimer,
  kTimerHigh,
  kDynamicShared,
  kTotalShared,
  kSyncHigh,
  kSyncLow,
  kWarpSize,
};

uint64_t nanoseconds(bool wall) {
  const auto now = wall ? std::chrono::system_clock::now().time_since_epoch()
                        : std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

uint64_t clock_ticks(const Context& context) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{nanoseconds(false)} * context.grid->clock_khz / 1'000'000);
}

uint64_t uniform_value(const Context& context, int64_t selector) {
  const GridState& grid = *context.grid;
  switch (selector) {
    case kOne:
      return 1;
    case kBlockSizeX:
      return grid.block[0];
    case kBlockSizeY:
      return grid.block[1];
    case kBlockSizeZ:
      return grid.block[2];
    case kBlockX:
      return context.block_index[0];
    case kBlockY:
      return context.block_index[1];
    case kBlockZ:
      return context.block_index[2];
    case kGridX:
      return grid.grid[0];
    case kGridY:
      return grid.grid[1];
    case kGridZ:
      return grid.grid[2];
    case kWarp:
      return context.warp_index;
    case kWarpCount:
      return 32;
    case kProcessor:
      return context.worker % grid.multiprocessor_count;
    case kProcessorCount:
      return grid.multiprocessor_count;
    case kGridId:
      return grid.grid_id;
    case kClock:
      return clock_ticks(context);
    case kClockHigh:
      return clock_ticks(context) >> 32;
    case kTimer:
      return nanoseconds(true);
    case kTimerHigh:
      return nanoseconds(true) >> 32;
    case kDynamicShared:
      return grid.dynamic_shared_size;
    case kTotalShared:
      return grid.shared_size;
    case kSyncHigh:
      return grid.sync_words >> 32;
    case kSyncLow:
      return grid.sync_words & 0xffff'ffff;
    case kWarpSize:
      return kLanes;
    default:
      return 0;
  }
}

template <typename T>
void uniform(const Instruction& in, Context& context) {
  fill<T>(in, context, static_cast<T>(uniform_value(context, in.immediate)));
}

void by_lane(const Instruction& in, Context& context) {
  uint32_t* d = context.row<uint32_t>(in.d);
  each(context.mask, [&](uint32_t i) {
    switch (in.immediate) {
      case kThreadX:
        d[i] = (*context.thread_index)[0][i];
        break;
      case kThreadY:
        d[i] = (*context.thread_index)[1][i];
        break;
      case kThreadZ:
        d[i] = (*context.thread_index)[2][i];
        break;
      case kLane:
        d[i] = i;
        break;
      case kMaskEq:
        d[i] = 1U << i;
        break;
      case kMaskLt:
        d[i] = (1U << i) - 1;
        break;
      case kMaskLe:
        d[i] = (2U << i) - 1;
        break;
      case kMaskGe:
        d[i] = ~((1U << i) - 1);
        break;
      default:
        d[i] = ~((2U << i) - 1);
        break;
    }
  });
}

bool is_by_lane(int64_t selector) {
  return (selector >= kThreadX && selector <= kThreadZ) || selector == kLane ||
         (selector >= kMaskEq && selector <= kMaskGt);
}

void shared_address(const Instruction& in, Context& context) {
  const uint64_t offset = context.shared_offsets[in.target] + static_cast<uint64_t>(in.immediate);
  if (in.option == 4) return fill<uint32_t>(in, context, static_cast<uint32_t>(offset));
  fill<uint64_t>(in, context, offset);
}

void local_address(const Instruction& in, Context& context) {
  const uint64_t offset = context.frame_local + static_cast<uint64_t>(in.immediate);
  if (in.option == 4) return fill<uint32_t>(in, context, static_cast<uint32_t>(offset));
  fill<uint64_t>(in, context, in.option2 != 0 ? kLocalWindow | offset : offset);
}

uint64_t window_of(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    default:
      return 0;
  }
}

void convert_address(const Instruction& in, Context& context) {
  const uint64_t window = window_of(static_cast<Space>(in.option2));
  const uint64_t* a = context.row<uint64_t>(in.a);
  uint64_t* d = context.row<uint64_t>(in.d);
  const bool to_space = in.option != 0;
  generic::for_lanes(context.mask, [=](uint32_t i) {
    d[i] = window == 0 ? a[i] : to_space ? a[i] & ~kWindowMask : (a[i] & ~kWindowMask) | window;
  });
}

bool is_constant(const Context& context, uint64_t address) {
  for (const auto& [begin, end] : context.program->const_ranges) {
    if (address >= begin && address < end) return true;
  }
  return false;
}

void is_space(const Instruction& in, Context& context) {
  const uint64_t* a = context.row<uint64_t>(in.a);
  const auto space = static_cast<Space>(in.option2);
  const uint32_t bits = generic::collect(context.mask, [&](uint32_t i) {
    const uint64_t window = a[i] & kWindowMask;
    switch (space) {
      case Space::kShared:
        return window == kSharedWindow;
      case Space::kLocal:
        return window == kLocalWindow;
      case Space::kParam:
        return window == kParameterWindow;
      case Space::kConst:
        return window == 0 && is_constant(context, a[i]);
      default:
        return window == 0 && !is_constant(context, a[i]);
    }
  });
  generic::set_predicate(context, in.d, bits);
}

// Rows of 8-bit registers have 16-bit elements.
uint32_t stride_of(uint32_t size) { return size < 2 ? 2 : size; }

void pack(const Instruction& in, Context& context) {
  std::byte* const d = context.row<std::byte>(in.d);
  const Operand* operands = context.extra(in);
  const uint32_t part = in.option;
  for (uint32_t k = 0; k < in.extra_sources; ++k) {
    const std::byte* from = context.row<std::byte>(operands[k]);
    each(context.mask, [&](uint32_t i) {
      std::memcpy(d + i * in.option2 + k * part, from + i * stride_of(part), part);
    });
  }
}

void unpack(const Instruction& in, Context& context) {
  const std::byte* const a = context.row<std::byte>(in.a);
  const Operand* operands = context.extra(in);
  const uint32_t part = in.option;
  for (uint32_t k = 0; k < in.extra_results; ++k) {
    std::byte* to = context.row<std::byte>(operands[k]);
    each(context.mask, [&](uint32_t i) {
      std::memcpy(to + i * stride_of(part), a + i * in.option2 + k * part, part);
    });
  }
}

void fence(const Instruction&, Context&) { thread_fence(__ATOMIC_SEQ_CST); }

void copy_async(const Instruction& in, Context& context) {
  const uint64_t* b = context.row<uint64_t>(in.b);
  const uint32_t* c = in.c == kNoOperand ? nullptr : context.row<uint32_t>(in.c);
  const uint32_t* ignored = in.e == kNoOperand ? nullptr : context.row<uint32_t>(in.e);
  const uint32_t size = in.option;
  for (uint32_t m = context.mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    std::byte* const to = resolve_address(context, Space::kShared, context.row<uint32_t>(in.a)[i],
                                          size, size, i, in.site);
    if (to == nullptr) return;
    uint32_t count = c == nullptr ? size : std::min(c[i], size);
    if (ignored != nullptr && ((*ignored >> i) & 1) != 0) count = 0;
    std::memset(to + count, 0, size - count);
    if (count == 0) continue;
    const std::byte* const from =
        resolve_address(context, Space::kGlobal, b[i], count, size, i, in.site);
    if (from == nullptr) return;
    std::memcpy(to, from, count);
  }
}

void nothing(const Instruction&, Context&) {}

}  // namespace

SpecialRegister special_register(std::string_view name) {
  static const std::unordered_map<std::string_view, Selector> kWords = {
      {"%tid.x", kThreadX},
      {"%tid.y", kThreadY},
      {"%tid.z", kThreadZ},
      {"%ntid.x", kBlockSizeX},
      {"%ntid.y", kBlockSizeY},
      {"%ntid.z", kBlockSizeZ},
      {"%ctaid.x", kBlockX},
      {"%ctaid.y", kBlockY},
      {"%ctaid.z", kBlockZ},
      {"%nctaid.x", kGridX},
      {"%nctaid.y", kGridY},
      {"%nctaid.z", kGridZ},
      {"%clusterid.x", kBlockX},
      {"%clusterid.y", kBlockY},
      {"%clusterid.z", kBlockZ},
      {"%nclusterid.x", kGridX},
      {"%nclusterid.y", kGridY},
      {"%nclusterid.z", kGridZ},
      {"%cluster_ctaid.x", kZero},
      {"%cluster_ctaid.y", kZero},
      {"%cluster_ctaid.z", kZero},
      {"%cluster_nctaid.x", kOne},
      {"%cluster_nctaid.y", kOne},
      {"%cluster_nctaid.z", kOne},
      {"%cluster_ctarank", kZero},
      {"%cluster_nctarank", kOne},
      {"%laneid", kLane},
      {"%warpid", kWarp},
      {"%nwarpid", kWarpCount},
      {"%smid", kProcessor},
      {"%nsmid", kProcessorCount},
      {"%lanemask_eq", kMaskEq},
      {"%lanemask_le", kMaskLe},
      {"%lanemask_lt", kMaskLt},
      {"%lanemask_ge", kMaskGe},
      {"%lanemask_gt", kMaskGt},
      {"%clock", kClock},
      {"%clock_hi", kClockHigh},
      {"%globaltimer_lo", kTimer},
      {"%globaltimer_hi", kTimerHigh},
      {"%dynamic_smem_size", kDynamicShared},
      {"%total_smem_size", kTotalShared},
      {"%aggr_smem_size", kTotalShared},
      {"%envreg1", kSyncHigh},
      {"%envreg2", kSyncLow},
      {"WARP_SZ", kWarpSize},
      {"%reserved_smem_offset_begin", kZero},
      {"%reserved_smem_offset_end", kZero},
      {"%reserved_smem_offset_cap", kZero}};
  static const std::unordered_map<std::string_view, Selector> kLongs = {
      {"%clock64", kClock},
      {"%globaltimer", kTimer},
      {"%gridid", kGridId},
      {"%current_graph_exec", kZero}};
  if (const auto word = kWords.find(name); word != kWords.end()) {
    return {is_by_lane(word->second) ? by_lane : uniform<uint32_t>, 4, word->second};
  }
  if (const auto found = kLongs.find(name); found != kLongs.end()) {
    return {uniform<uint64_t>, 8, found->second};
  }
  if (name.starts_with("%envreg")) return {uniform<uint32_t>, 4, kZero};
  if (name.starts_with("%pm") && name.ends_with("_64")) return {uniform<uint64_t>, 8, kZero};
  if (name.starts_with("%pm")) return {uniform<uint32_t>, 4, kZero};
  return {};
}

Handler shared_address_handler() { return shared_address; }
Handler local_address_handler() { return local_address; }
Handler convert_address_handler() { return convert_address; }
Handler is_space_handler() { return is_space; }
Handler pack_handler() { return pack; }
Handler unpack_handler() { return unpack; }
Handler fence_handler() { return fence; }
Handler copy_async_handler() { return copy_async; }
Handler nothing_handler() { return nothing; }

}  // namespace rgpu::server::ptx
