// Lowering of loads, stores, atomics and address arithmetic.
#include <algorithm>

#include "server/cuda/emulated/ptx_lowering.h"
#include "server/cuda/emulated/ptx_shape.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

uint32_t row_size(Type type) { return std::max(2U, type_size(type)); }

uint8_t order_options(Order order) {
  switch (order) {
    case Order::kWeak:
      return 0;
    case Order::kVolatile:
    case Order::kRelaxed:
      return 2;
    default:
      return 3;
  }
}

}  // namespace

void Lowering::load(const Statement& statement, Shape shape) {
  // A trailing cache policy changes nothing.
  if (!expect_count(statement, 2, 3)) return;
  const SyntaxOperand& to = statement.operands[0];
  const std::vector<SyntaxOperand> single = {to};
  const bool is_vector = to.kind == SyntaxOperand::Kind::kVector;
  const std::vector<SyntaxOperand>& parts = is_vector ? to.parts : single;
  if (parts.size() != shape.vector) return fail("a vector of the wrong length");
  uint32_t size = row_size(shape.type);
  for (const SyntaxOperand& part : parts) {
    if (const Operand found = find_register(part); found != kNoOperand) size = size_of(found);
  }
  std::vector<Operand> results;
  for (const SyntaxOperand& part : parts) results.push_back(result(part, size));
  const Address from = address(statement.operands[1], shape.space);
  if (!function_.error.empty()) return;
  shape.space = from.space;
  const Handler run =
      from.in_parameters ? handlers_.parameter(shape, size) : handlers_.load(shape, size);
  if (run == nullptr) return not_emulated();
  if (from.in_parameters && uint64_t{type_size(shape.type)} * shape.vector > from.room) {
    return fail("a load behind the parameters");
  }
  Instruction& in = emit(run);
  put_address(in, from);
  in.option = from.in_parameters ? 0 : order_options(shape.order);
  if (!is_vector) {
    in.d = results[0];
    return;
  }
  in.extra = static_cast<uint32_t>(function_.extra_operands.size());
  in.extra_results = static_cast<uint8_t>(results.size());
  function_.extra_operands.insert(function_.extra_operands.end(), results.begin(), results.end());
  if (results.size() == 1) in.d = results[0];
}

void Lowering::store(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 2, 3)) return;
  const SyntaxOperand& from = statement.operands[1];
  const std::vector<SyntaxOperand> single = {from};
  const bool is_vector = from.kind == SyntaxOperand::Kind::kVector;
  const std::vector<SyntaxOperand>& parts = is_vector ? from.parts : single;
  if (parts.size() != shape.vector) return fail("a vector of the wrong length");
  uint32_t size = row_size(shape.type);
  for (const SyntaxOperand& part : parts) {
    if (const Operand found = find_register(part); found != kNoOperand) size = size_of(found);
  }
  std::vector<Operand> sources;
  for (const SyntaxOperand& part : parts) {
    const Type type = size == row_size(shape.type) ? shape.type : Type::kNone;
    sources.push_back(source(part, size, type));
  }
  const Address to = address(statement.operands[0], shape.space);
  if (!function_.error.empty()) return;
  if (to.in_parameters) return fail("a store to a kernel's parameter");
  shape.space = to.space;
  const Handler run = handlers_.store(shape, size);
  if (run == nullptr) return not_emulated();
  Instruction& in = emit(run);
  put_address(in, to);
  in.option = order_options(shape.order);
  in.b = sources[0];
  if (!is_vector) return;
  in.extra = static_cast<uint32_t>(function_.extra_operands.size());
  in.extra_sources = static_cast<uint8_t>(sources.size());
  function_.extra_operands.insert(function_.extra_operands.end(), sources.begin(), sources.end());
}

void Lowering::atomic(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 3, 5)) return;
  atomic_access(&statement.operands[0], statement, 1, shape);
}

void Lowering::reduction(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 2, 3)) return;
  atomic_access(nullptr, statement, 0, shape);
}

// A vector is one access an element: each element is atomic, not all together.
void Lowering::atomic_access(const SyntaxOperand* to, const Statement& statement, size_t first,
                             const Shape& shape) {
  const Handler run = atomic_handler(shape);
  if (run == nullptr) return not_emulated();
  const bool swap = shape.combine == Combine::kCas;
  if (statement.operands.size() < first + (swap ? 3 : 2)) return fail("an operand is missing");
  const uint32_t size = row_size(shape.type);
  const auto part_of = [&](const SyntaxOperand& operand, uint32_t k) -> const SyntaxOperand* {
    if (operand.kind != SyntaxOperand::Kind::kVector) return shape.vector == 1 ? &operand : nullptr;
    return operand.parts.size() == shape.vector ? &operand.parts[k] : nullptr;
  };
  Address at = address(statement.operands[first], shape.space);
  if (at.in_parameters) return fail("an atomic on a kernel's parameter");
  if (at.base == kNoOperand) at = {address_register(at), 0, Space::kLocal, false, 0};
  for (uint32_t k = 0; k < shape.vector; ++k) {
    const SyntaxOperand* value = part_of(statement.operands[first + 1], k);
    const SyntaxOperand* target = to == nullptr ? nullptr : part_of(*to, k);
    if (value == nullptr || (to != nullptr && target == nullptr))
      return fail("a vector of the wrong length");
    const Operand d = target == nullptr || target->kind == SyntaxOperand::Kind::kSink
                          ? kNoOperand
                          : result(*target, size);
    const Operand b = source(*value, size, shape.type);
    const Operand c = swap ? source(statement.operands[first + 2], size, shape.type) : kNoOperand;
    Instruction& in = emit(run);
    put_address(in, at);
    in.immediate += int64_t{type_size(shape.type)} * k;
    in.option = at.space == Space::kShared ? 4 : 8;
    in.d = d;
    in.b = b;
    in.c = c;
  }
}

void Lowering::cvta(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 2, 2)) return;
  const uint32_t size = row_size(shape.type);
  const Operand d = result(statement.operands[0], size);
  Operand a = source(statement.operands[1], size, Type::kNone);
  if (size != 8) return not_emulated();
  Instruction& in = emit(convert_address_handler());
  in.d = d;
  in.a = a;
  in.option = shape.to_space ? 1 : 0;
  in.option2 = static_cast<uint8_t>(shape.space);
}

void Lowering::isspacep(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 2, 2)) return;
  const Operand d = result(statement.operands[0], 0);
  const Operand a = source(statement.operands[1], 8, Type::kNone);
  Instruction& in = emit(is_space_handler());
  in.d = d;
  in.a = a;
  in.option2 = static_cast<uint8_t>(shape.space);
}

// A block is a cluster of its own: an address of rank 0 is itself.
void Lowering::mapa(const Statement& statement, Shape shape) {
  if (statement.name.starts_with("mapa")) {
    if (!expect_count(statement, 3, 3)) return;
    shape.op = Op::kMov;
    const uint32_t size = row_size(shape.type);
    const Operand d = result(statement.operands[0], size);
    const Operand a = source(statement.operands[1], size, Type::kNone);
    Instruction& in = emit(handlers_.select(shape));
    in.d = d;
    in.a = a;
    return;
  }
  if (!expect_count(statement, 2, 2)) return;
  shape.op = Op::kMov;
  shape.type = Type::kU32;
  const Operand d = result(statement.operands[0], 4);
  const Operand a = constant(4, 0);
  Instruction& in = emit(handlers_.select(shape));
  in.d = d;
  in.a = a;
}

// mbarrier.* and cp.async.mbarrier.arrive: what was copied is there, so that to arrive is left.
void Lowering::mbarrier(const Statement& statement, const std::vector<std::string_view>& parts) {
  const bool copied = parts[0] == "cp";
  const std::string_view what =
      parts.size() > (copied ? 3 : 1) ? parts[copied ? 3 : 1] : std::string_view();
  std::vector<std::string_view> rest;
  bool parity = false;
  bool without_increment = false;
  for (size_t i = copied ? 4 : 2; i < parts.size(); ++i) {
    if (parts[i] == "parity") {
      parity = true;
    } else if (parts[i] == "noinc") {
      without_increment = true;
    } else if (parts[i] != "noComplete") {
      rest.push_back(parts[i]);
    }
  }
  const auto shape = parse_shape(rest);
  if (!shape || shape->type != Type::kB64) return not_emulated();
  const bool test = what == "test_wait" || what == "try_wait";
  const bool arrives = what == "arrive" || what == "arrive_drop";
  if (copied && arrives && !without_increment) {
    emit(nothing_handler());  // One more is awaited, and has come.
    return;
  }
  const size_t first = test || (arrives && !copied) ? 1 : 0;
  if (what == "pending_count") {
    if (!expect_count(statement, 2, 2)) return;
    const Operand d = result(statement.operands[0], 4);
    const Operand a = source(statement.operands[1], 8, Type::kB64);
    Instruction& in = emit(barrier_word_handler(BarrierWord::kPendingCount));
    in.d = d;
    in.a = a;
    return;
  }
  if (!test && !arrives && what != "init" && what != "inval") return not_emulated();
  const bool needs_value = test || what == "init";
  if (!expect_count(statement, first + (needs_value ? 2 : 1), first + (test ? 3 : 2))) return;
  if (what == "inval") {
    emit(nothing_handler());
    return;
  }
  Operand d = kNoOperand;
  if (test) d = result(statement.operands[0], 0);
  if (first == 1 && arrives && statement.operands[0].kind != SyntaxOperand::Kind::kSink) {
    d = result(statement.operands[0], 8);
  }
  Address at = address(statement.operands[first], shape->space);
  if (at.base == kNoOperand) return fail("an mbarrier in local memory");
  Operand b = kNoOperand;
  if (statement.operands.size() > first + 1) {
    b = source(statement.operands[first + 1], test && !parity ? 8 : 4, Type::kNone);
  }
  Instruction& in = emit(barrier_word_handler(test      ? BarrierWord::kTestWait
                                              : arrives ? BarrierWord::kArrive
                                                        : BarrierWord::kInitialize));
  put_address(in, at);
  in.d = d;
  in.b = b;
  in.option = (test && parity) || what == "arrive_drop" ? 1 : 0;
}

// Copied at once: waiting for it is then nothing.
void Lowering::cp_async(const Statement& statement, const std::vector<std::string_view>& parts) {
  if (parts.size() < 2 || parts[1] != "async") return not_emulated();
  const std::string_view what = parts.size() > 2 ? parts[2] : std::string_view();
  if (what == "commit_group" || what == "wait_group" || what == "wait_all") {
    emit(nothing_handler());
    return;
  }
  if (what == "mbarrier") return mbarrier(statement, parts);
  if (what != "ca" && what != "cg") return not_emulated();
  if (!parse_shape(std::span(parts).subspan(2))) return not_emulated();
  if (!expect_count(statement, 3, 5)) return;
  const SyntaxOperand& size = statement.operands[2];
  if (size.kind != SyntaxOperand::Kind::kInteger ||
      (size.integer != 4 && size.integer != 8 && size.integer != 16)) {
    return fail("cp.async of a size other than 4, 8 or 16");
  }
  const Operand a = address_register(address(statement.operands[0], Space::kShared));
  const Operand b = address_register(address(statement.operands[1], Space::kGlobal));
  Operand c = kNoOperand;
  Operand e = kNoOperand;
  if (statement.operands.size() > 3) {
    const Operand found = find_register(statement.operands[3]);
    if (found != kNoOperand && size_of(found) == 0) {
      e = predicate(statement.operands[3]);
    } else if (found == kNoOperand || size_of(found) == 4) {
      c = source(statement.operands[3], 4, Type::kU32);
    }
  }
  Instruction& in = emit(copy_async_handler());
  in.a = a;
  in.b = b;
  in.c = c;
  in.e = e;
  in.option = static_cast<uint8_t>(size.integer);
  in.site = static_cast<uint16_t>(sites_++ % kIntervalCount);
}

}  // namespace rgpu::server::ptx
