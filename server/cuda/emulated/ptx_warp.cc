#include "server/cuda/emulated/ptx_warp.h"

#include <algorithm>
#include <bit>

#include "server/cuda/emulated/ptx_block.h"
#include "server/cuda/emulated/ptx_run.h"

namespace rgpu::server::ptx {
namespace {

constexpr int32_t kBudget = 256;
constexpr uint32_t kPatience = 64;    // Slices before lanes ahead get a turn in any case.
constexpr int32_t kWaitingCost = 32;  // Of a backward branch of one who waits.

uint32_t count_lanes(uint32_t mask) {
  return mask == kAllLanes ? kLanes : static_cast<uint32_t>(std::popcount(mask));
}

}  // namespace

Warp::Warp(Block& block, uint32_t index) : block_(block), root_(std::make_unique<Frame>()) {
  context_.warp_index = index;
  context_.thread_index = &thread_index;
  fragments_.reserve(kLanes + 1);
}

void Warp::reset(uint32_t lanes, std::byte* rows) {
  const Kernel& kernel = block_.kernel();
  live_ = lanes;
  executed_ = 0;
  turn_ = 0;
  slices_ = 0;
  rotate_ = false;
  free_frames_.clear();
  for (const std::unique_ptr<Frame>& frame : frames_) free_frames_.push_back(frame.get());
  root_->function = kernel.function;
  root_->rows = rows;
  root_->lanes = lanes;
  fragments_.clear();
  fragments_.push_back({0, lanes, root_.get(), Fragment::State::kReady, 0, 0});
  const uint64_t size = (uint64_t{kernel.function->local_size_bytes} + 15) / 16 * 16;
  if (local_.size() < size * kLanes) local_.resize(size * kLanes);
  context_.local = local_.data();
  context_.local_stride = local_.size() / kLanes;
}

void Warp::add_fragment(uint32_t pc, uint32_t lanes, Frame* frame, Fragment::State state,
                        uint32_t barrier_number) {
  const Fragment added{pc, lanes, frame, state, barrier_number, turn_};
  // In the place of one that is gone: so there are never more than lanes, and one.
  for (size_t i = 0; i < fragments_.size(); ++i) {
    if (i == running_ || fragments_[i].lanes != 0) continue;
    fragments_[i] = added;
    return;
  }
  fragments_.push_back(added);
}

// The next to run, with all that are at the same place; null: none can.
Fragment* Warp::pick() {
  std::erase_if(fragments_, [](const Fragment& each) { return each.lanes == 0; });
  Fragment* best = nullptr;
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kReady) continue;
    if (best == nullptr) {
      best = &each;
    } else if (rotate_) {
      if (each.last_run < best->last_run) best = &each;
    } else if (each.frame->depth != best->frame->depth) {
      if (each.frame->depth > best->frame->depth) best = &each;
    } else if (each.pc < best->pc) {
      best = &each;
    }
  }
  if (best == nullptr || fragments_.size() == 1) return best;
  for (Fragment& each : fragments_) {
    if (&each == best || each.state != Fragment::State::kReady || each.pc != best->pc ||
        each.frame != best->frame) {
      continue;
    }
    best->lanes |= each.lanes;
    each.lanes = 0;
  }
  return best;
}

// Where the running fragment must look whether another should run: it meets it there, or passes it.
uint32_t Warp::limit_for(const Fragment& running) const {
  uint32_t limit = UINT32_MAX;
  for (const Fragment& each : fragments_) {
    if (&each == &running || each.state != Fragment::State::kReady || each.lanes == 0) continue;
    if (each.frame->depth > running.frame->depth) return 0;
    if (each.frame->depth == running.frame->depth && each.pc < limit) limit = each.pc;
  }
  return limit;
}

void Warp::enter(const Frame& frame) {
  context_.base[0] = frame.rows;
  context_.base[1] = const_cast<std::byte*>(frame.function->constants.data());
  context_.extras = frame.function->extra_operands.data();
  context_.frame_local = frame.local;
}

Warp::Outcome Warp::run() {
  context_.budget = kBudget;
  context_.waits = false;
  context_.stored = false;
  for (;;) {
    Fragment* const next = pick();
    if (next == nullptr) return live_ == 0 ? Outcome::kDone : Outcome::kBlocked;
    next->last_run = ++turn_;
    const Stop stop = execute(*next);
    rotate_ = false;
    if (stop == Stop::kFault) return Outcome::kFault;
    if (stop == Stop::kSlice) {
      // Who computes goes on with those that are behind; who waits lets the others go first.
      rotate_ = context_.waits || ++slices_ % kPatience == 0;
      return Outcome::kSlice;
    }
  }
}

Warp::Stop Warp::execute(Fragment& first) {
  // Fragments move when others are added: they are found by their index.
  running_ = static_cast<size_t>(&first - fragments_.data());
  const auto running = [this]() -> Fragment& { return fragments_[running_]; };
  enter(*first.frame);
  const Instruction* code = first.frame->function->code.data();
  uint32_t pc = first.pc;
  uint32_t lanes = first.lanes;
  uint32_t limit = rotate_ ? UINT32_MAX : limit_for(first);
  uint64_t executed = 0;
  Stop stop = Stop::kReschedule;
  for (;;) {
    const Instruction& in = code[pc];
    uint32_t mask = lanes;
    if (in.guard != kNoOperand) {
      const uint32_t guard = *context_.row<uint32_t>(in.guard);
      mask &= in.guard_negated ? ~guard : guard;
    }
    executed += count_lanes(mask);
    if (in.kind == Kind::kPlain) [[likely]] {
      if (mask != 0) {
        context_.mask = mask;
        in.run(in, context_);
        if (context_.fault_code != 0) [[unlikely]] {
          context_.fault_at = &in;
          stop = Stop::kFault;
          break;
        }
      }
      if (++pc >= limit) break;
      continue;
    }
    if (mask == 0) {
      if (++pc >= limit) break;
      continue;
    }
    running().pc = pc;
    const bool goes_on = control(in, mask, running());
    if (context_.fault_code != 0) {
      context_.fault_at = &in;
      stop = Stop::kFault;
      break;
    }
    if (!goes_on) {
      executed_ += executed;
      return Stop::kReschedule;  // The fragment is stored as it is to be, or gone.
    }
    pc = running().pc;
    lanes = running().lanes;
    if (context_.budget < 0) {
      stop = Stop::kSlice;
      break;
    }
    limit = rotate_ ? UINT32_MAX : limit_for(running());
    if (pc >= limit) break;
  }
  executed_ += executed;
  running().pc = pc;
  return stop;
}

bool Warp::control(const Instruction& in, uint32_t mask, Fragment& running) {
  switch (in.kind) {
    case Kind::kBranch:
      return branch(in, mask, running, in.target);
    case Kind::kBranchIndex:
      return branch_index(in, mask, running);
    case Kind::kCall:
      return call(in, mask, running);
    case Kind::kReturn:
      return leave(in, mask, running);
    case Kind::kExit:
      return exit_lanes(mask, running);
    case Kind::kCollective:
      return collective(in, mask, running);
    case Kind::kBarrier:
      return barrier(in, mask, running);
    case Kind::kTrap:
      context_.fail(FaultCode::kLaunchFailed, "trap", static_cast<uint32_t>(std::countr_zero(mask)),
                    0);
      return false;
    default:  // nanosleep
      running.pc += 1;
      context_.waits = true;
      context_.budget = -1;
      return true;
  }
}

bool Warp::branch(const Instruction&, uint32_t mask, Fragment& running, uint32_t target) {
  const uint32_t stay = running.lanes & ~mask;
  const uint32_t next = running.pc + 1;
  if (target < next) context_.budget -= context_.waits ? kWaitingCost : 1;
  if (stay == 0) {
    running.pc = target;
    return true;
  }
  Frame* const frame = running.frame;
  // Who is farther behind runs on.
  const bool take = target < next;
  running.pc = take ? target : next;
  running.lanes = take ? mask : stay;
  add_fragment(take ? next : target, take ? stay : mask, frame, Fragment::State::kReady);
  return true;
}

bool Warp::branch_index(const Instruction& in, uint32_t mask, Fragment& running) {
  const uint32_t* index = context_.row<uint32_t>(in.a);
  const std::vector<uint32_t>& table = running.frame->function->branch_tables[in.target];
  Frame* const frame = running.frame;
  running.lanes &= ~mask;
  running.pc += 1;
  // Lanes of one target at a time; each group waits at its target.
  for (uint32_t left = mask; left != 0;) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    if (index[lane] >= table.size()) {
      context_.fail(FaultCode::kInvalidPc, "an indexed branch out of its table", lane, index[lane]);
      return false;
    }
    const uint32_t target = table[index[lane]];
    uint32_t group = 0;
    for (uint32_t m = left; m != 0; m &= m - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(m));
      if (index[i] < table.size() && table[index[i]] == target) group |= 1U << i;
    }
    left &= ~group;
    if (target <= running.pc) context_.budget -= context_.waits ? kWaitingCost : 1;
    add_fragment(target, group, frame, Fragment::State::kReady);
  }
  return false;
}

bool Warp::exit_lanes(uint32_t mask, Fragment& running) {
  live_ &= ~mask;
  running.lanes &= ~mask;
  running.pc += 1;
  const bool goes_on = running.lanes != 0;
  // Those who wait for the lanes that are gone need not.
  for (Fragment& each : fragments_) {
    if (each.state == Fragment::State::kCollective) each.state = Fragment::State::kReady;
  }
  block_.threads_exited(count_lanes(mask));
  return goes_on;
}

// Lanes of other fragments that wait for the same instruction join; lanes of bar.warp.sync may
// meet from different places.
void Warp::meet(const Instruction& in, uint32_t mask, uint32_t& present) {
  present = mask;
  for (const Fragment& each : fragments_) {
    if (each.state != Fragment::State::kCollective) continue;
    const Instruction& other = each.frame->function->code[each.pc];
    if (other.run == in.run && other.d == kNoOperand && in.d == kNoOperand) present |= each.lanes;
  }
}

// Those who met the lanes that have just gone on, each if all that it waits for are there.
void Warp::release_met(uint32_t present) {
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kCollective || each.lanes == 0) continue;
    const Instruction& in = each.frame->function->code[each.pc];
    if (in.d != kNoOperand) continue;
    const std::byte* const base =
        (in.e & kConstantBit) != 0 ? each.frame->function->constants.data() : each.frame->rows;
    const auto* members = reinterpret_cast<const uint32_t*>(base + (in.e & ~kConstantBit));
    uint32_t needed = 0;
    for (uint32_t m = each.lanes; m != 0; m &= m - 1) needed |= members[std::countr_zero(m)];
    if ((needed & live_ & ~present) != 0) continue;
    each.pc += 1;
    each.state = Fragment::State::kReady;
  }
}

bool Warp::collective(const Instruction& in, uint32_t mask, Fragment& running) {
  const uint32_t* members = context_.row<uint32_t>(in.e);
  const uint32_t pc = running.pc;
  Frame* const frame = running.frame;
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kCollective || each.pc != pc || each.frame != frame)
      continue;
    running.lanes |= each.lanes;
    mask |= each.lanes;
    each.lanes = 0;
    each.state = Fragment::State::kReady;  // Empty: pick() drops it.
  }
  uint32_t present = mask;
  if (in.d == kNoOperand && fragments_.size() > 1) meet(in, mask, present);
  uint32_t ready = 0;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(m));
    if ((members[i] & live_ & ~present) == 0) ready |= 1U << i;
  }
  if (ready != 0) {
    context_.mask = ready;
    in.run(in, context_);
    if (present != mask) release_met(present);
  }
  const uint32_t waiting = mask & ~ready;
  running.lanes &= ~waiting;
  running.pc = pc + 1;
  const bool goes_on = running.lanes != 0;
  if (waiting != 0) add_fragment(pc, waiting, frame, Fragment::State::kCollective);
  return goes_on;
}

bool Warp::barrier(const Instruction& in, uint32_t mask, Fragment& running) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  const uint32_t number = context_.row<uint32_t>(in.a)[lane];
  const uint32_t expected = in.b == kNoOperand ? 0 : context_.row<uint32_t>(in.b)[lane];
  if (number > Block::kBarrierLast) {
    context_.fail(FaultCode::kIllegalInstruction, "a barrier's number is above 15", lane, number);
    return false;
  }
  const uint32_t pc = running.pc;
  Frame* const frame = running.frame;
  const bool waits = in.option != 1;
  uint32_t truth = 0;
  if (in.c != kNoOperand) truth = *context_.row<uint32_t>(in.c) & mask;
  running.lanes = waits ? running.lanes & ~mask : running.lanes;
  running.pc = pc + 1;
  const bool goes_on = running.lanes != 0;
  if (waits) add_fragment(pc, mask, frame, Fragment::State::kBarrier, number);
  block_.arrive(number, expected, mask == live_ ? kLanes : count_lanes(mask), count_lanes(mask),
                static_cast<Combine>(in.option2), truth, mask);
  return goes_on;
}

bool Warp::can_run() const {
  return std::any_of(fragments_.begin(), fragments_.end(), [](const Fragment& each) {
    return each.state == Fragment::State::kReady && each.lanes != 0;
  });
}

void Warp::release(uint32_t number, uint32_t value) {
  for (Fragment& each : fragments_) {
    if (each.state != Fragment::State::kBarrier || each.barrier != number) continue;
    const Instruction& in = each.frame->function->code[each.pc];
    if (in.d != kNoOperand) {
      auto* row = reinterpret_cast<uint32_t*>(each.frame->rows + in.d);
      if (static_cast<Combine>(in.option2) == Combine::kPopc) {
        for (uint32_t m = each.lanes; m != 0; m &= m - 1) row[std::countr_zero(m)] = value;
      } else {
        *row = (*row & ~each.lanes) | (value != 0 ? each.lanes : 0);
      }
    }
    each.pc += 1;
    each.state = Fragment::State::kReady;
  }
}

}  // namespace rgpu::server::ptx
