// Context: what an instruction's handler sees of the warp that executes it.
//
// Threading: one thread at a time; blocks run beside each other and share global memory only.
// Errors:    a handler that cannot go on sets `fault_code` once; the warp stops behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/cuda/emulated/ptx_code.h"
#include "server/cuda/emulated/ptx_module.h"

namespace rgpu::server::ptx {

inline constexpr uint32_t kIntervalCount = 64;
inline constexpr uint32_t kAllLanes = 0xffff'ffff;

// Where kernels print; any thread calls it.
class Output {
 public:
  virtual ~Output() = default;
  virtual void print(std::string_view text) = 0;
  virtual void print_error(std::string_view text) = 0;
};

// What all blocks of a launch share.
struct GridState {
  std::array<uint32_t, 3> grid{};
  std::array<uint32_t, 3> block{};
  uint32_t dynamic_shared_size = 0;
  uint32_t shared_size = 0;  // Static and dynamic.
  uint32_t multiprocessor_count = 1;
  uint64_t clock_khz = 1;
  uint64_t grid_id = 0;
  Output* output = nullptr;
  uint64_t sync_words = 0;  // Address of a cooperative launch's barrier; %envreg1 and 2 hold it.
};

struct Context {
  std::array<std::byte*, 2> base{};  // Of the frame's rows, and of the function's constants.
  const Operand* extras = nullptr;   // Of the function.
  uint32_t mask = 0;                 // Lanes that execute the instruction.
  uint32_t active = 0;               // Lanes that are together, predicated off or not.

  std::byte* shared = nullptr;
  uint64_t shared_size = 0;
  std::byte* local = nullptr;  // One lane's after the other's.
  uint64_t local_stride = 0;   // Also the size of a lane's.
  uint32_t frame_local = 0;    // Where the frame's variables begin in it.
  const std::byte* parameters = nullptr;
  uint64_t parameter_size = 0;
  const uint32_t* shared_offsets = nullptr;
  Memory* memory = nullptr;
  const Program* program = nullptr;
  std::array<Memory::Interval, kIntervalCount>* intervals = nullptr;

  const GridState* grid = nullptr;
  std::array<uint32_t, 3> block_index{};
  uint32_t worker = 0;
  uint32_t warp_index = 0;
  const std::array<std::array<uint32_t, kLanes>, 3>* thread_index = nullptr;

  int32_t budget = 0;   // Of taken backward branches; below zero others get a turn.
  bool waits = false;   // Has looked at memory as one who waits does.
  bool stored = false;  // Has written.

  int fault_code = 0;
  uint32_t fault_lane = 0;
  uint64_t fault_address = 0;
  const char* fault_what = "";
  const Instruction* fault_at = nullptr;

  template <typename T>
  [[gnu::always_inline]] T* row(Operand operand) const {
    return reinterpret_cast<T*>(base[operand >> 31] + (operand & ~kConstantBit));
  }
  [[nodiscard]] const Operand* extra(const Instruction& in) const { return extras + in.extra; }
  void fail(int code, const char* what, uint32_t lane, uint64_t address) {
    if (fault_code != 0) return;
    fault_code = code;
    fault_what = what;
    fault_lane = lane;
    fault_address = address;
  }
};

// ThreadSanitizer does not know fences, and g++ says so; every access that they order is atomic.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
[[gnu::always_inline]] inline void thread_fence(int order) { __atomic_thread_fence(order); }

// The address a lane accesses in `space`, checked; null after fail(). The way for what is not in
// the cached interval.
std::byte* resolve_address(Context& context, Space space, uint64_t address, uint32_t size,
                           uint32_t alignment, uint32_t lane, uint32_t site);

// Handlers of one build of them (ptx_handlers.h).
struct HandlerTable {
  Handler (*integer)(const Shape&);
  Handler (*real)(const Shape&);     // f32 and f64
  Handler (*half)(const Shape&);     // f16 and bf16
  Handler (*compare)(const Shape&);  // setp, set
  Handler (*select)(const Shape&);   // selp, slct, mov
  Handler (*convert)(const Shape&);
  // A load of a kernel's parameter at a fixed place: `immediate`.
  Handler (*parameter)(const Shape&, uint32_t register_size);
  Handler (*load)(const Shape&, uint32_t register_size);
  Handler (*store)(const Shape&, uint32_t register_size);
};

// The fastest build that this processor runs.
[[nodiscard]] const HandlerTable& handlers();

}  // namespace rgpu::server::ptx
