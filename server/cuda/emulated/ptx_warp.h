// Warp: 32 lanes of a block and where each of them is.
//
// Lanes that are together form a fragment. The fragment that is farthest behind runs first (deepest
// call, then lowest address), so that lanes meet again where their paths join; who spends its
// budget of backward branches goes last once, so that lanes may wait for each other.
//
// Threading: one thread at a time.
// Lifetime:  of its block, which owns the memory of its rows.
// Errors:    in `context().fault_code`; the block stops then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/cuda/emulated/ptx_context.h"

namespace rgpu::server::ptx {

class Block;

// One activation of a function, shared by the lanes that called it together.
struct Frame {
  const Function* function = nullptr;
  Frame* parent = nullptr;
  std::byte* rows = nullptr;
  uint32_t lanes = 0;  // That have not returned.
  uint32_t depth = 0;
  uint32_t return_to = 0;
  uint32_t local = 0;  // Offset of its variables in local memory.
  const Instruction* call = nullptr;
  std::unique_ptr<std::byte[]> owned_rows;
  uint32_t owned_size = 0;
};

struct Fragment {
  enum class State : uint8_t { kReady, kBarrier, kCollective };
  uint32_t pc = 0;
  uint32_t lanes = 0;
  Frame* frame = nullptr;
  State state = State::kReady;
  uint32_t barrier = 0;
  uint64_t last_run = 0;
};

class Warp {
 public:
  enum class Outcome : uint8_t {
    kDone,     // All lanes exited.
    kBlocked,  // All wait for a barrier.
    kSlice,    // The turn is over.
    kFault,
  };

  Warp(Block& block, uint32_t index);
  // Begins anew for another block of the same launch.
  void reset(uint32_t lanes, std::byte* rows);
  Outcome run();
  // Lanes that wait at barrier `number` go on; `values` is what bar.red found.
  void release(uint32_t number, uint32_t value);

  [[nodiscard]] bool can_run() const;
  [[nodiscard]] Context& context() { return context_; }
  [[nodiscard]] const Context& context() const { return context_; }
  [[nodiscard]] uint32_t live() const { return live_; }
  [[nodiscard]] uint64_t executed() const { return executed_; }
  [[nodiscard]] bool done() const { return live_ == 0; }
  std::array<std::array<uint32_t, kLanes>, 3> thread_index{};

 private:
  enum class Stop : uint8_t { kReschedule, kSlice, kFault };

  Fragment* pick();
  uint32_t limit_for(const Fragment& running) const;
  void enter(const Frame& frame);
  Stop execute(Fragment& running);
  // Each returns whether the running fragment goes on at `pc`.
  bool control(const Instruction& in, uint32_t mask, Fragment& running);
  bool branch(const Instruction& in, uint32_t mask, Fragment& running, uint32_t target);
  bool branch_index(const Instruction& in, uint32_t mask, Fragment& running);
  bool call(const Instruction& in, uint32_t mask, Fragment& running);
  bool call_function(const Instruction& in, const CallSite& site, const Function& callee,
                     uint32_t mask, Fragment& running);
  bool indirect_call(const Instruction& in, const CallSite& site, uint32_t mask, Fragment& running);
  bool leave(const Instruction& in, uint32_t mask, Fragment& running);
  bool exit_lanes(uint32_t mask, Fragment& running);
  bool collective(const Instruction& in, uint32_t mask, Fragment& running);
  bool barrier(const Instruction& in, uint32_t mask, Fragment& running);
  void release_met(uint32_t present);
  void meet(const Instruction& in, uint32_t mask, uint32_t& present);
  void add_fragment(uint32_t pc, uint32_t lanes, Frame* frame, Fragment::State state,
                    uint32_t barrier_number = 0);
  bool grow_local(uint64_t size_bytes, uint32_t lane);
  Frame* take_frame(const Function& function, uint32_t lane);
  void call_builtin(const Instruction& in, const CallSite& site, uint32_t mask, const Frame& frame);

  Block& block_;
  Context context_;
  std::vector<Fragment> fragments_;
  std::unique_ptr<Frame> root_;
  std::vector<std::unique_ptr<Frame>> frames_;  // All there are for calls.
  std::vector<Frame*> free_frames_;
  std::vector<std::byte> local_;
  uint32_t live_ = 0;
  uint64_t executed_ = 0;
  uint64_t turn_ = 0;
  size_t running_ = 0;  // Index of the fragment that runs.
  uint32_t slices_ = 0;
  bool rotate_ = false;
};

}  // namespace rgpu::server::ptx
