// Calls and returns: frames of rows, and parameters from one frame's local memory to another's.
#include <algorithm>
#include <bit>
#include <cstring>

#include "server/cuda/emulated/ptx_block.h"
#include "server/cuda/emulated/ptx_builtin.h"
#include "server/cuda/emulated/ptx_run.h"
#include "server/cuda/emulated/ptx_warp.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint64_t kLocalSizeMax = 1 << 19;
constexpr size_t kFramesMax = 8192;

// Bytes of a place for one lane. A null pointer for a place of no size.
struct PlaceRow {
  std::byte* first = nullptr;
  uint64_t stride = 0;
  uint32_t size = 0;

  [[nodiscard]] std::byte* at(uint32_t lane) const { return first + lane * stride; }
};

PlaceRow row_of(const Context& context, const Frame& frame, const Place& place, Operand operand) {
  if (!place.in_register) {
    return {context.local + frame.local + place.offset, context.local_stride, place.size_bytes};
  }
  const bool constant = (operand & kConstantBit) != 0;
  std::byte* const base =
      constant ? const_cast<std::byte*>(frame.function->constants.data()) : frame.rows;
  return {base + (operand & ~kConstantBit), place.size_bytes, place.size_bytes};
}

// The row of a place of a call: in the caller's frame.
PlaceRow caller_row(const Context& context, const Frame& frame, const Place& place) {
  const Operand operand = place.in_register ? frame.function->extra_operands[place.offset] : 0;
  return row_of(context, frame, place, operand);
}

PlaceRow callee_row(const Context& context, const Frame& frame, const Place& place) {
  return row_of(context, frame, place, place.offset);
}

void copy(const PlaceRow& from, const PlaceRow& to, uint32_t mask) {
  const uint32_t size = std::min(from.size, to.size);
  if (size == 0) return;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    std::memcpy(to.at(lane), from.at(lane), size);
  }
}

class WarpBuiltinCall : public BuiltinCall {
 public:
  WarpBuiltinCall(const Context& context, const Frame& frame, const CallSite& site)
      : context_(context), frame_(frame), site_(site) {}
  uint64_t argument(uint32_t index, uint32_t lane) override {
    uint64_t value = 0;
    if (index >= site_.arguments.size()) return 0;
    const PlaceRow row = caller_row(context_, frame_, site_.arguments[index]);
    if (row.size != 0) std::memcpy(&value, row.at(lane), std::min(row.size, 8U));
    return value;
  }
  void set_result(uint32_t lane, uint64_t value) override {
    if (site_.results.empty()) return;
    const PlaceRow row = caller_row(context_, frame_, site_.results[0]);
    if (row.size != 0) std::memcpy(row.at(lane), &value, std::min(row.size, 8U));
  }

 private:
  const Context& context_;
  const Frame& frame_;
  const CallSite& site_;
};

}  // namespace

bool Warp::grow_local(uint64_t size_bytes, uint32_t lane) {
  if (size_bytes <= context_.local_stride) return true;
  if (size_bytes > kLocalSizeMax) {
    context_.fail(FaultCode::kIllegalAddress, "stack overflow", lane, size_bytes);
    return false;
  }
  const uint64_t stride =
      std::min(std::max((size_bytes + 15) / 16 * 16, context_.local_stride * 2), kLocalSizeMax);
  std::vector<std::byte> larger(stride * kLanes);
  for (uint32_t i = 0; i < kLanes && context_.local_stride != 0; ++i) {
    std::memcpy(larger.data() + i * stride, context_.local + i * context_.local_stride,
                context_.local_stride);
  }
  local_ = std::move(larger);
  context_.local = local_.data();
  context_.local_stride = stride;
  return true;
}

Frame* Warp::take_frame(const Function& function, uint32_t lane) {
  Frame* frame = nullptr;
  for (size_t i = 0; i < free_frames_.size() && frame == nullptr; ++i) {
    if (free_frames_[i]->owned_size < function.frame_size_bytes) continue;
    frame = free_frames_[i];
    free_frames_.erase(free_frames_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (frame == nullptr) {
    if (frames_.size() >= kFramesMax) {
      context_.fail(FaultCode::kIllegalAddress, "stack overflow", lane, 0);
      return nullptr;
    }
    frame = frames_.emplace_back(std::make_unique<Frame>()).get();
    frame->owned_rows = std::make_unique_for_overwrite<std::byte[]>(function.frame_size_bytes + 64);
    frame->owned_size = function.frame_size_bytes;
  }
  const auto address = reinterpret_cast<uintptr_t>(frame->owned_rows.get());
  frame->rows = frame->owned_rows.get() + ((address + 63) / 64 * 64 - address);
  return frame;
}

bool Warp::call(const Instruction& in, uint32_t mask, Fragment& running) {
  const CallSite& site = running.frame->function->calls[in.target];
  if (site.builtin != Builtin::kNone) {
    call_builtin(in, site, mask, *running.frame);
    running.pc += 1;
    return true;
  }
  if (site.callee != nullptr) return call_function(in, site, *site.callee, mask, running);
  return indirect_call(in, site, mask, running);
}

void Warp::call_builtin(const Instruction& in, const CallSite& site, uint32_t mask,
                        const Frame& frame) {
  (void)in;
  context_.mask = mask;
  WarpBuiltinCall call(context_, frame, site);
  run_builtin(site.builtin, context_, call);
}

bool Warp::indirect_call(const Instruction& in, const CallSite& site, uint32_t mask,
                         Fragment& running) {
  const uint64_t* targets = context_.row<uint64_t>(in.a);
  const auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  const uint64_t target = targets[lane];
  const Program& program = *context_.program;
  const uint64_t index = target & ~kWindowMask;
  if ((target & kWindowMask) != kCodeWindow || index >= program.functions.size() ||
      program.functions[index]->is_entry || program.functions[index]->code.empty()) {
    context_.fail(FaultCode::kInvalidPc, "a call to what is no function", lane, target);
    return false;
  }
  // Lanes with another target stay here and call it themselves.
  uint32_t same = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    same |= (targets[i] == target ? 1U : 0U) << i;
  }
  const uint32_t others = mask & ~same;
  if (others != 0) {
    add_fragment(running.pc, others, running.frame, Fragment::State::kReady);
    running.lanes &= ~others;
  }
  return call_function(in, site, *program.functions[index], same, running);
}

bool Warp::call_function(const Instruction& in, const CallSite& site, const Function& callee,
                         uint32_t mask, Fragment& running) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  Frame* const caller = running.frame;
  if (!callee.error.empty()) {
    context_.fail(FaultCode::kInvalidPtx, callee.error.c_str(), lane, 0);
    return false;
  }
  const uint64_t local =
      (uint64_t{caller->local} + caller->function->local_size_bytes + 15) / 16 * 16;
  if (!grow_local(local + callee.local_size_bytes, lane)) return false;
  Frame* const frame = take_frame(callee, lane);
  if (frame == nullptr) return false;
  frame->function = &callee;
  frame->parent = caller;
  frame->lanes = mask;
  frame->depth = caller->depth + 1;
  frame->return_to = running.pc + 1;
  frame->local = static_cast<uint32_t>(local);
  frame->call = &in;
  const size_t count = std::min(site.arguments.size(), callee.formals.size());
  for (size_t i = 0; i < count; ++i) {
    copy(caller_row(context_, *caller, site.arguments[i]),
         callee_row(context_, *frame, callee.formals[i]), mask);
  }
  const uint32_t rest = running.lanes & ~mask;
  const uint32_t next = running.pc + 1;
  running.lanes = mask;
  running.frame = frame;
  running.pc = 0;
  if (rest != 0) add_fragment(next, rest, caller, Fragment::State::kReady);
  // Another function: the loop starts again with its code.
  return false;
}

bool Warp::leave(const Instruction&, uint32_t mask, Fragment& running) {
  Frame* const frame = running.frame;
  Frame* const caller = frame->parent;
  const CallSite& site = caller->function->calls[frame->call->target];
  const size_t count = std::min(site.results.size(), frame->function->formal_results.size());
  for (size_t i = 0; i < count; ++i) {
    copy(callee_row(context_, *frame, frame->function->formal_results[i]),
         caller_row(context_, *caller, site.results[i]), mask);
  }
  const uint32_t rest = running.lanes & ~mask;
  const uint32_t next = running.pc + 1;
  running.lanes = mask;
  running.frame = caller;
  running.pc = frame->return_to;
  if (rest != 0) add_fragment(next, rest, frame, Fragment::State::kReady);
  frame->lanes &= ~mask;
  if (frame->lanes == 0) free_frames_.push_back(frame);
  return false;
}

}  // namespace rgpu::server::ptx
