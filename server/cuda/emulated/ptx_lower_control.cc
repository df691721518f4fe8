// Lowering of branches, calls, barriers and what a warp does together.
#include <algorithm>
#include <unordered_set>

#include "server/cuda/emulated/ptx_lowering.h"
#include "server/cuda/emulated/ptx_shape.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

bool has(const std::vector<std::string_view>& parts, std::string_view word) {
  return std::find(parts.begin() + 1, parts.end(), word) != parts.end();
}

Builtin builtin_of(std::string_view name) {
  if (name == "vprintf") return Builtin::kVprintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  if (name == "free") return Builtin::kFree;
  return Builtin::kNone;
}

// Hints and waits for what has already happened.
bool is_nothing(const std::vector<std::string_view>& parts) {
  static const std::unordered_set<std::string_view> kNothing = {
      "prefetch",       "prefetchu",  "applypriority", "discard",
      "griddepcontrol", "setmaxnreg", "pmevent"};
  return kNothing.contains(parts[0]);
}

}  // namespace

bool Lowering::control_instruction(const Statement& statement,
                                   const std::vector<std::string_view>& parts) {
  const std::string_view base = parts[0];
  if (base == "bra") {
    branch(statement);
  } else if (base == "brx") {
    branch_index(statement);
  } else if (base == "call") {
    call(statement);
  } else if (base == "ret") {
    emit_return();
  } else if (base == "exit") {
    emit(nullptr).kind = Kind::kExit;
  } else if (base == "trap" || base == "brkpt") {
    emit(nullptr).kind = Kind::kTrap;
  } else if (base == "nanosleep") {
    emit(nullptr).kind = Kind::kYield;
  } else if (base == "membar" || base == "fence") {
    emit(fence_handler());
  } else if (is_nothing(parts)) {
    emit(nothing_handler());
  } else if (base == "bar" || base == "barrier") {
    if (has(parts, "cluster")) {
      cluster_barrier(parts);
    } else if (has(parts, "warp")) {
      warp_barrier(statement);
    } else if (const auto shape = parse_shape(std::span(parts).subspan(1))) {
      barrier(statement, *shape, has(parts, "arrive"), has(parts, "red"));
    } else {
      not_emulated();
    }
  } else if (base == "mbarrier") {
    mbarrier(statement, parts);
  } else if (base == "activemask") {
    if (!expect_count(statement, 1, 1)) return true;
    const Operand d = result(statement.operands[0], 4);
    emit(active_mask_handler()).d = d;
  } else if (base == "elect") {
    elect(statement);
  } else if (base == "shfl" || base == "vote" || base == "match" || base == "redux") {
    const auto shape = parse_shape(std::span(parts).subspan(1));
    if (!shape || !shape->sync) {
      not_emulated();
    } else if (base == "shfl") {
      shuffle(statement, *shape);
    } else if (base == "vote") {
      vote(statement, *shape);
    } else if (base == "match") {
      match(statement, *shape);
    } else {
      redux(statement, *shape);
    }
  } else {
    return false;
  }
  return true;
}

void Lowering::branch(const Statement& statement) {
  if (!expect_count(statement, 1, 1)) return;
  emit(nullptr).kind = Kind::kBranch;
  jumps_.push_back({function_.code.size() - 1, statement.operands[0].name, open_.back()});
}

void Lowering::branch_index(const Statement& statement) {
  if (!expect_count(statement, 2, 2)) return;
  const Operand a = source(statement.operands[0], 4, Type::kU32);
  const auto targets = targets_.find(statement.operands[1].name);
  if (targets == targets_.end()) return fail("brx.idx without its targets");
  const auto table = static_cast<uint32_t>(function_.branch_tables.size());
  function_.branch_tables.emplace_back();
  for (const std::string_view label : targets->second) {
    table_jumps_.emplace_back(table, Jump{0, label, open_.back()});
  }
  Instruction& in = emit(nullptr);
  in.kind = Kind::kBranchIndex;
  in.a = a;
  in.target = table;
}

// Registers go through the instruction's extra operands: Place::offset counts them.
bool Lowering::call_places(const SyntaxOperand& list, std::vector<Place>& places, bool results) {
  for (const SyntaxOperand& part : list.parts) {
    Place place;
    const Name* name = part.kind == SyntaxOperand::Kind::kName ? find(part.name) : nullptr;
    if (name != nullptr && name->kind == Name::Kind::kLocal) {
      place.offset = name->offset;
      place.size_bytes = name->size_bytes;
    } else if (part.kind == SyntaxOperand::Kind::kSink) {
      place.size_bytes = 0;
    } else {
      Operand operand = find_register(part);
      uint32_t size = operand == kNoOperand ? 4 : size_of(operand);
      if (operand == kNoOperand && !results) operand = source(part, size, Type::kNone);
      if (operand == kNoOperand) {
        fail("an argument of a call is not known");
        return false;
      }
      place.in_register = true;
      place.size_bytes = size;
      place.offset = static_cast<uint32_t>(function_.extra_operands.size());
      function_.extra_operands.push_back(operand);
    }
    places.push_back(place);
  }
  return true;
}

void Lowering::call(const Statement& statement) {
  CallSite site;
  const std::vector<SyntaxOperand>& operands = statement.operands;
  size_t at = 0;
  const auto extra = static_cast<uint32_t>(function_.extra_operands.size());
  if (at < operands.size() && operands[at].kind == SyntaxOperand::Kind::kList) {
    if (!call_places(operands[at++], site.results, true)) return;
  }
  const size_t result_count = function_.extra_operands.size() - extra;
  if (at >= operands.size()) return fail("a call without a function");
  const SyntaxOperand& callee = operands[at++];
  if (at < operands.size() && operands[at].kind == SyntaxOperand::Kind::kList) {
    if (!call_places(operands[at++], site.arguments, false)) return;
  }
  const size_t source_count = function_.extra_operands.size() - extra - result_count;
  if (result_count > 255 || source_count > 255) return fail("a call with too many arguments");
  Operand target = find_register(callee);
  site.name = std::string(callee.name);
  if (target == kNoOperand) {
    const Symbol* symbol = symbols_.find(callee.name);
    if (symbol == nullptr || symbol->kind != Symbol::Kind::kFunction) {
      return fail("function " + site.name + " is not declared");
    }
    if (!symbol->syntax->has_body) site.builtin = builtin_of(callee.name);
    if (!symbol->syntax->has_body && site.builtin == Builtin::kNone) {
      return fail("function " + site.name + " is not defined");
    }
    site.callee = symbol->function;
  } else if (size_of(target) != 8) {
    return fail("a call through a register of other than 64 bits");
  }
  Instruction& in = emit(nullptr);
  in.kind = Kind::kCall;
  in.a = target;
  in.target = static_cast<uint32_t>(function_.calls.size());
  in.extra = extra;
  in.extra_results = static_cast<uint8_t>(result_count);
  in.extra_sources = static_cast<uint8_t>(source_count);
  function_.calls.push_back(std::move(site));
}

// a: number, b: count of threads, c: predicate, d: result; option 1 arrive, 2 reduce.
void Lowering::barrier(const Statement& statement, const Shape& shape, bool arrive, bool reduce) {
  const std::vector<SyntaxOperand>& operands = statement.operands;
  if (!expect_count(statement, reduce ? 3 : 1, reduce ? 4 : 2)) return;
  if (arrive && operands.size() != 2) return fail("bar.arrive without a count");
  size_t at = 0;
  const bool count = shape.combine == Combine::kPopc;
  const Operand d = reduce ? result(operands[at++], count ? 4 : 0) : kNoOperand;
  const Operand a = source(operands[at++], 4, Type::kU32);
  Operand b = kNoOperand;
  if (at + (reduce ? 1 : 0) < operands.size()) b = source(operands[at++], 4, Type::kU32);
  const Operand c = reduce ? predicate(operands[at]) : kNoOperand;
  Instruction& in = emit(nullptr);
  in.kind = Kind::kBarrier;
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  in.option = arrive ? 1 : reduce ? 2 : 0;
  in.option2 = static_cast<uint8_t>(shape.combine);
}

// The cluster is the block: to wait is to meet, at a barrier that programs cannot name.
void Lowering::cluster_barrier(const std::vector<std::string_view>& parts) {
  if (has(parts, "arrive")) {
    emit(fence_handler());
    return;
  }
  const Operand a = constant(4, 16);
  Instruction& in = emit(nullptr);
  in.kind = Kind::kBarrier;
  in.a = a;
  in.option = 0;
}

Operand Lowering::members(const SyntaxOperand& operand) { return source(operand, 4, Type::kB32); }

void Lowering::warp_barrier(const Statement& statement) {
  if (!expect_count(statement, 1, 1)) return;
  const Operand e = members(statement.operands[0]);
  Instruction& in = emit(nothing_handler());
  in.kind = Kind::kCollective;
  in.e = e;
}

void Lowering::shuffle(const Statement& statement, const Shape& shape) {
  if (!expect_count(statement, 5, 5)) return;
  const SyntaxOperand& to = statement.operands[0];
  const bool pair = to.kind == SyntaxOperand::Kind::kPair;
  const Operand d = result(pair ? to.parts[0] : to, 4);
  const Operand p = pair ? result(to.parts[1], 0) : kNoOperand;
  const Operand a = source(statement.operands[1], 4, Type::kB32);
  const Operand b = source(statement.operands[2], 4, Type::kU32);
  const Operand c = source(statement.operands[3], 4, Type::kU32);
  const Operand e = members(statement.operands[4]);
  Instruction& in = emit(shuffle_handler(shape));
  in.kind = Kind::kCollective;
  in.d = d;
  in.p = p;
  in.a = a;
  in.b = b;
  in.c = c;
  in.e = e;
  in.option = static_cast<uint8_t>(shape.mode);
}

void Lowering::vote(const Statement& statement, const Shape& shape) {
  if (!expect_count(statement, 3, 3)) return;
  const Operand d = result(statement.operands[0], shape.mode == Mode::kBallot ? 4 : 0);
  const Operand a = predicate(statement.operands[1]);
  const Operand e = members(statement.operands[2]);
  Instruction& in = emit(vote_handler(shape));
  in.kind = Kind::kCollective;
  in.d = d;
  in.a = a;
  in.e = e;
  in.option = static_cast<uint8_t>(shape.mode);
}

void Lowering::match(const Statement& statement, const Shape& shape) {
  if (!expect_count(statement, 3, 3)) return;
  const Handler run = match_handler(shape);
  if (run == nullptr) return not_emulated();
  const SyntaxOperand& to = statement.operands[0];
  const bool pair = to.kind == SyntaxOperand::Kind::kPair;
  const Operand d = result(pair ? to.parts[0] : to, 4);
  const Operand p = pair ? result(to.parts[1], 0) : kNoOperand;
  const Operand a = source(statement.operands[1], type_size(shape.type), shape.type);
  const Operand e = members(statement.operands[2]);
  Instruction& in = emit(run);
  in.kind = Kind::kCollective;
  in.d = d;
  in.p = p;
  in.a = a;
  in.e = e;
  in.option = static_cast<uint8_t>(shape.mode);
}

void Lowering::redux(const Statement& statement, const Shape& shape) {
  if (!expect_count(statement, 3, 3)) return;
  const Handler run = reduce_handler(shape);
  if (run == nullptr) return not_emulated();
  const Operand d = result(statement.operands[0], 4);
  const Operand a = source(statement.operands[1], 4, shape.type);
  const Operand e = members(statement.operands[2]);
  Instruction& in = emit(run);
  in.kind = Kind::kCollective;
  in.d = d;
  in.a = a;
  in.e = e;
  in.option = static_cast<uint8_t>(shape.combine);
  in.option2 = static_cast<uint8_t>((shape.absolute ? 1 : 0) | (shape.nan ? 2 : 0));
}

void Lowering::elect(const Statement& statement) {
  if (!expect_count(statement, 2, 2)) return;
  const SyntaxOperand& to = statement.operands[0];
  const bool pair = to.kind == SyntaxOperand::Kind::kPair;
  const Operand d = result(pair ? to.parts[0] : to, 4);
  const Operand p = pair ? result(to.parts[1], 0) : kNoOperand;
  const Operand e = members(statement.operands[1]);
  Instruction& in = emit(elect_handler());
  in.kind = Kind::kCollective;
  in.d = d;
  in.p = p;
  in.e = e;
}

}  // namespace rgpu::server::ptx
