// Decoded code: what the interpreter runs.
//
// A register is a row: 32 values, one a lane, beside each other. A predicate is a row of bits, one
// 32-bit word. Rows lie in a frame; constants are rows too, filled once.
//
// Threading: read-only after the module was loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/cuda/emulated/ptx_types.h"

namespace rgpu::server::ptx {

inline constexpr uint32_t kLanes = 32;

// The offset of a row in the frame, or in the constants with kConstantBit.
using Operand = uint32_t;
inline constexpr Operand kConstantBit = 0x8000'0000;
inline constexpr Operand kNoOperand = 0x7fff'ffff;

// Where shared, local and parameter memory lie among generic addresses. Addresses of this process
// end below 2^57, so none of them is global.
inline constexpr uint64_t kSharedWindow = 0x1000'0000'0000'0000;
inline constexpr uint64_t kLocalWindow = 0x2000'0000'0000'0000;
inline constexpr uint64_t kParameterWindow = 0x3000'0000'0000'0000;
inline constexpr uint64_t kCodeWindow = 0x4000'0000'0000'0000;
inline constexpr uint64_t kWindowMask = 0xff00'0000'0000'0000;

enum class Kind : uint8_t {
  kPlain,
  kBranch,       // to `target`
  kBranchIndex,  // by a, through the function's target table
  kCall,
  kReturn,
  kExit,
  kTrap,
  kBarrier,     // bar.sync, bar.arrive, bar.red: among a block
  kCollective,  // waits until the lanes of the mask in `e` are there, then runs
  kYield,       // nanosleep
};

struct Context;
struct Function;
struct Instruction;
using Handler = void (*)(const Instruction&, Context&);

struct Instruction {
  Handler run = nullptr;
  Kind kind = Kind::kPlain;
  bool guard_negated = false;
  uint8_t option = 0;  // Of the handler.
  uint8_t option2 = 0;
  Operand guard = kNoOperand;
  Operand d = kNoOperand;  // Results.
  Operand p = kNoOperand;
  Operand a = kNoOperand;  // Sources.
  Operand b = kNoOperand;
  Operand c = kNoOperand;
  Operand e = kNoOperand;
  uint32_t extra = 0;         // More operands: in Function::extra_operands,
  uint8_t extra_results = 0;  // first the results,
  uint8_t extra_sources = 0;  // then the sources.
  uint16_t site = 0;          // Which interval cache a memory access uses.
  uint32_t line = 0;
  uint32_t target = 0;    // Of a branch; index of a call, a table, a barrier's description.
  int64_t immediate = 0;  // Added to an address; a handler's constant.
};

// Where an argument or a result of a call is: in local memory or in a register.
struct Place {
  bool in_register = false;
  uint32_t offset = 0;  // In the frame's local memory; or an Operand.
  uint32_t size_bytes = 0;
};

enum class Builtin : uint8_t { kNone, kVprintf, kAssertFail, kMalloc, kFree };

struct CallSite {
  const Function* callee = nullptr;  // Null: by the address in the instruction's `a`.
  Builtin builtin = Builtin::kNone;
  std::vector<Place> arguments;
  std::vector<Place> results;
  std::string name;
};

struct Function {
  std::string name;
  bool is_entry = false;
  uint32_t index = 0;
  std::vector<Instruction> code;
  std::vector<Operand> extra_operands;
  std::vector<std::vector<uint32_t>> branch_tables;
  std::vector<CallSite> calls;
  std::vector<Place> formals;  // In the callee's frame.
  std::vector<Place> formal_results;
  std::vector<std::byte> constants;  // Rows.
  uint32_t frame_size_bytes = 0;     // Of registers.
  uint32_t local_size_bytes = 0;
  uint32_t register_count = 16;
  std::vector<uint32_t> shared_variables;  // Indices of those it names.
  std::string error;                       // Why it cannot run.
};

struct SharedVariable {
  std::string name;
  uint32_t size_bytes = 0;
  uint32_t alignment = 1;
  bool is_dynamic = false;
};

struct Program {
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<SharedVariable> shared;
  // All .const variables lie in here, for isspacep.
  std::vector<std::pair<uint64_t, uint64_t>> const_ranges;
};

}  // namespace rgpu::server::ptx
