// Lowering of arithmetic, comparisons, moves and conversions.
#include <algorithm>
#include <unordered_map>

#include "server/cuda/emulated/ptx_lowering.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

struct Row {
  Op op;
  // A letter an operand, the result first: t the first type, u the second, w twice as wide as t
  // where the opcode says .wide, i 32 bits, p a predicate.
  const char* pattern;
};

const std::unordered_map<std::string_view, Row>& table() {
  static const std::unordered_map<std::string_view, Row> kTable = {
      {"add", {Op::kAdd, "ttt"}},      {"sub", {Op::kSub, "ttt"}},
      {"addc", {Op::kAddc, "ttt"}},    {"subc", {Op::kSubc, "ttt"}},
      {"mul", {Op::kMul, "wtt"}},      {"mad", {Op::kMad, "wttw"}},
      {"madc", {Op::kMadc, "wttw"}},   {"fma", {Op::kFma, "tttt"}},
      {"div", {Op::kDiv, "ttt"}},      {"rem", {Op::kRem, "ttt"}},
      {"abs", {Op::kAbs, "tt"}},       {"neg", {Op::kNeg, "tt"}},
      {"min", {Op::kMin, "ttt"}},      {"max", {Op::kMax, "ttt"}},
      {"sad", {Op::kSad, "tttt"}},     {"mul24", {Op::kMul24, "ttt"}},
      {"mad24", {Op::kMad24, "tttt"}}, {"and", {Op::kAnd, "ttt"}},
      {"or", {Op::kOr, "ttt"}},        {"xor", {Op::kXor, "ttt"}},
      {"not", {Op::kNot, "tt"}},       {"cnot", {Op::kCnot, "tt"}},
      {"shl", {Op::kShl, "tti"}},      {"shr", {Op::kShr, "tti"}},
      {"shf", {Op::kShf, "ttti"}},     {"prmt", {Op::kPrmt, "tttt"}},
      {"bfe", {Op::kBfe, "ttii"}},     {"bfi", {Op::kBfi, "tttii"}},
      {"bfind", {Op::kBfind, "it"}},   {"brev", {Op::kBrev, "tt"}},
      {"popc", {Op::kPopc, "it"}},     {"clz", {Op::kClz, "it"}},
      {"fns", {Op::kFns, "iiii"}},     {"bmsk", {Op::kBmsk, "iii"}},
      {"szext", {Op::kSzext, "tti"}},  {"dp4a", {Op::kDp4a, "iiii"}},
      {"dp2a", {Op::kDp2a, "iiii"}},   {"rcp", {Op::kRcp, "tt"}},
      {"sqrt", {Op::kSqrt, "tt"}},     {"rsqrt", {Op::kRsqrt, "tt"}},
      {"sin", {Op::kSin, "tt"}},       {"cos", {Op::kCos, "tt"}},
      {"ex2", {Op::kEx2, "tt"}},       {"lg2", {Op::kLg2, "tt"}},
      {"tanh", {Op::kTanh, "tt"}},     {"copysign", {Op::kCopysign, "ttt"}},
      {"testp", {Op::kTestp, "pt"}},
  };
  return kTable;
}

bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kF16x2 || type == Type::kBF16 || type == Type::kBF16x2;
}

uint32_t row_size(Type type) { return type == Type::kPred ? 0 : std::max(2U, type_size(type)); }

uint8_t half_options(const Shape& s) {
  return static_cast<uint8_t>((s.ftz ? 1 : 0) | (s.saturate ? 2 : 0) | (s.relu ? 4 : 0) |
                              (s.nan ? 8 : 0) | (s.xorsign ? 16 : 0));
}

uint8_t convert_options(const Shape& s) {
  return static_cast<uint8_t>((s.ftz ? 1 : 0) | (s.saturate ? 2 : 0) | (s.saturate_finite ? 4 : 0) |
                              (s.relu ? 8 : 0));
}

}  // namespace

bool Lowering::table_instruction(const Statement& statement, std::string_view base,
                                 const Shape& shape) {
  const auto found = table().find(base);
  if (found == table().end()) return false;
  arithmetic(statement, shape, found->second.op, found->second.pattern);
  return true;
}

void Lowering::arithmetic(const Statement& statement, Shape shape, Op op, const char* pattern) {
  shape.op = op;
  if (shape.type == Type::kNone || shape.vector != 1) return not_emulated();
  const std::string_view letters = pattern;
  const bool third = (op == Op::kMin || op == Op::kMax) && shape.type == Type::kF32;
  if (!expect_count(statement, letters.size(), letters.size() + (third ? 1 : 0))) return;
  const bool real =
      shape.type == Type::kF32 || shape.type == Type::kF64 || shape.type == Type::kF32x2;
  const Handler run = is_half(shape.type) ? handlers_.half(shape)
                      : real              ? handlers_.real(shape)
                                          : handlers_.integer(shape);
  if (run == nullptr) return not_emulated();
  const auto size_for = [&](char letter) {
    switch (letter) {
      case 'p':
        return 0U;
      case 'i':
        return 4U;
      case 'w':
        return row_size(shape.type) * (shape.half == Half::kWide ? 2 : 1);
      default:
        return row_size(shape.type);
    }
  };
  Operand operands[5] = {kNoOperand, kNoOperand, kNoOperand, kNoOperand, kNoOperand};
  operands[0] = result(statement.operands[0], size_for(letters[0]));
  for (size_t i = 1; i < statement.operands.size(); ++i) {
    const char letter = i < letters.size() ? letters[i] : 't';
    operands[i] =
        source(statement.operands[i], size_for(letter), letter == 't' ? shape.type : Type::kNone);
  }
  Instruction& in = emit(run);
  in.d = operands[0];
  in.a = operands[1];
  in.b = operands[2];
  in.c = operands[3];
  in.e = operands[4];
  finish_arithmetic(in, shape);
}

// What handlers want to know beside their operands.
void Lowering::finish_arithmetic(Instruction& in, const Shape& shape) {
  const bool carry_in = shape.op == Op::kAddc || shape.op == Op::kSubc || shape.op == Op::kMadc;
  if (is_half(shape.type)) {
    in.option = half_options(shape);
  } else if (carry_in || shape.carry) {
    if (carry_ == kNoOperand) carry_ = new_register(0);
    in.option = static_cast<uint8_t>((carry_in ? 1 : 0) | (shape.carry ? 2 : 0));
    if (carry_in) in.e = carry_;
    if (shape.carry) in.p = carry_;
  } else if (shape.op == Op::kMin || shape.op == Op::kMax) {
    in.option = static_cast<uint8_t>((shape.nan ? 1 : 0) | (shape.xorsign ? 2 : 0));
  } else if (shape.op == Op::kPrmt || shape.op == Op::kTestp) {
    in.option = static_cast<uint8_t>(shape.mode);
  } else if (shape.op == Op::kDp2a) {
    in.option = shape.half == Half::kHigh ? 2 : 0;
  } else {
    in.option = static_cast<uint8_t>(shape.rounding);
    in.option2 = shape.ftz ? 1 : 0;
  }
}

void Lowering::lop3(const Statement& statement, Shape shape) {
  if (shape.type != Type::kB32 || shape.combine != Combine::kNone) return not_emulated();
  if (!expect_count(statement, 5, 5)) return;
  shape.op = Op::kLop3;
  const Operand d = result(statement.operands[0], 4);
  const Operand a = source(statement.operands[1], 4, Type::kB32);
  const Operand b = source(statement.operands[2], 4, Type::kB32);
  const Operand c = source(statement.operands[3], 4, Type::kB32);
  if (statement.operands[4].kind != SyntaxOperand::Kind::kInteger)
    return fail("lop3 without a table");
  Instruction& in = emit(handlers_.integer(shape));
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  in.immediate = static_cast<int64_t>(statement.operands[4].integer & 0xff);
}

void Lowering::setp(const Statement& statement, Shape shape) {
  const Handler run = handlers_.compare(shape);
  if (run == nullptr) return not_emulated();
  const bool combined = shape.combine != Combine::kNone;
  if (!expect_count(statement, combined ? 4 : 3, combined ? 4 : 3)) return;
  const SyntaxOperand& to = statement.operands[0];
  const bool pair = to.kind == SyntaxOperand::Kind::kPair;
  const Operand d = result(pair ? to.parts[0] : to, 0);
  const Operand p = pair ? result(to.parts[1], 0) : kNoOperand;
  const uint32_t size = row_size(shape.type);
  const Operand a = source(statement.operands[1], size, shape.type);
  const Operand b = source(statement.operands[2], size, shape.type);
  const Operand c = combined ? predicate(statement.operands[3]) : kNoOperand;
  Instruction& in = emit(run);
  in.d = d;
  in.p = p;
  in.a = a;
  in.b = b;
  in.c = c;
  in.option = static_cast<uint8_t>(shape.combine);
}

// setp, then one of two constants; of packed types for each half.
void Lowering::set(const Statement& statement, Shape shape) {
  const bool combined = shape.combine != Combine::kNone;
  Shape compare = shape;
  compare.type = shape.type2;
  const Handler run = handlers_.compare(compare);
  if (run == nullptr || type_size(shape.type) < 2) return not_emulated();
  if (!expect_count(statement, combined ? 4 : 3, combined ? 4 : 3)) return;
  const bool packed = shape.type2 == Type::kF16x2 || shape.type2 == Type::kBF16x2;
  const uint32_t size = row_size(shape.type2);
  const Operand d = result(statement.operands[0], row_size(shape.type));
  const Operand a = source(statement.operands[1], size, shape.type2);
  const Operand b = source(statement.operands[2], size, shape.type2);
  const Operand c = combined ? predicate(statement.operands[3]) : kNoOperand;
  const Operand low = new_register(0);
  const Operand high = packed ? new_register(0) : kNoOperand;
  Instruction& in = emit(run);
  in.d = low;
  in.p = high;
  in.a = a;
  in.b = b;
  in.c = c;
  in.option = static_cast<uint8_t>(shape.combine);
  const auto one = [&]() -> uint64_t {
    switch (shape.type) {
      case Type::kF32:
        return 0x3f80'0000;
      case Type::kF64:
        return 0x3ff0'0000'0000'0000;
      case Type::kF16:
      case Type::kF16x2:
        return 0x3c00;
      case Type::kBF16:
      case Type::kBF16x2:
        return 0x3f80;
      default:
        return ~uint64_t{0};
    }
  };
  const auto choose = [&](Operand to, Operand from, uint32_t width) {
    Shape select;
    select.op = Op::kSelp;
    select.type = width == 2 ? Type::kB16 : width == 4 ? Type::kB32 : Type::kB64;
    const Operand yes = constant(width, one());
    const Operand no = constant(width, 0);
    Instruction& selection = emit(handlers_.select(select));
    selection.d = to;
    selection.a = yes;
    selection.b = no;
    selection.c = from;
  };
  if (!packed) return choose(d, low, row_size(shape.type));
  const Operand halves[2] = {new_register(2), new_register(2)};
  choose(halves[0], low, 2);
  choose(halves[1], high, 2);
  Instruction& pack = emit(pack_handler());
  pack.d = d;
  pack.option = 2;
  pack.option2 = 4;
  pack.extra = static_cast<uint32_t>(function_.extra_operands.size());
  pack.extra_sources = 2;
  function_.extra_operands.insert(function_.extra_operands.end(), halves, halves + 2);
}

void Lowering::selp(const Statement& statement, Shape shape) {
  shape.op = Op::kSelp;
  const Handler run = handlers_.select(shape);
  if (run == nullptr || shape.type == Type::kPred) return not_emulated();
  if (!expect_count(statement, 4, 4)) return;
  const uint32_t size = row_size(shape.type);
  const Operand d = result(statement.operands[0], size);
  const Operand a = source(statement.operands[1], size, shape.type);
  const Operand b = source(statement.operands[2], size, shape.type);
  const Operand c = predicate(statement.operands[3]);
  Instruction& in = emit(run);
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
}

void Lowering::slct(const Statement& statement, Shape shape) {
  shape.op = Op::kSlct;
  const Handler run = handlers_.select(shape);
  if (run == nullptr || (shape.type2 != Type::kS32 && shape.type2 != Type::kF32))
    return not_emulated();
  if (!expect_count(statement, 4, 4)) return;
  const uint32_t size = row_size(shape.type);
  const Operand d = result(statement.operands[0], size);
  const Operand a = source(statement.operands[1], size, shape.type);
  const Operand b = source(statement.operands[2], size, shape.type);
  const Operand c = source(statement.operands[3], 4, shape.type2);
  Instruction& in = emit(run);
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  in.option = shape.type2 == Type::kS32 ? 0 : shape.ftz ? 2 : 1;
}

void Lowering::mov(const Statement& statement, Shape shape) {
  if (!expect_count(statement, 2, 2)) return;
  const uint32_t size = row_size(shape.type);
  const SyntaxOperand& to = statement.operands[0];
  const SyntaxOperand& from = statement.operands[1];
  const bool unpack = to.kind == SyntaxOperand::Kind::kVector;
  const bool pack = from.kind == SyntaxOperand::Kind::kVector;
  if (!unpack && !pack) {
    shape.op = Op::kMov;
    const Operand d = result(to, size);
    const Operand a = source(from, size, shape.type);
    const Handler run = handlers_.select(shape);
    if (run == nullptr) return not_emulated();
    Instruction& in = emit(run);
    in.d = d;
    in.a = a;
    return;
  }
  const std::vector<SyntaxOperand>& parts = unpack ? to.parts : from.parts;
  const auto count = static_cast<uint32_t>(parts.size());
  const uint32_t part = count == 0 ? 0 : type_size(shape.type) / count;
  if (unpack == pack || part == 0 || part * count != type_size(shape.type)) {
    return fail("mov between vectors of different sizes");
  }
  std::vector<Operand> operands;
  for (const SyntaxOperand& each : parts) {
    operands.push_back(unpack ? result(each, std::max(2U, part))
                              : source(each, std::max(2U, part), Type::kNone));
  }
  const Operand whole = unpack ? source(from, size, shape.type) : result(to, size);
  Instruction& in = emit(unpack ? unpack_handler() : pack_handler());
  (unpack ? in.a : in.d) = whole;
  in.option = static_cast<uint8_t>(part);
  in.option2 = static_cast<uint8_t>(type_size(shape.type));
  in.extra = static_cast<uint32_t>(function_.extra_operands.size());
  (unpack ? in.extra_results : in.extra_sources) = static_cast<uint8_t>(count);
  function_.extra_operands.insert(function_.extra_operands.end(), operands.begin(), operands.end());
}

// Registers may be wider than the types: values are narrowed before and widened behind.
void Lowering::cvt(const Statement& statement, Shape shape) {
  shape.op = Op::kCvt;
  const bool pair = statement.operands.size() == 3;
  if (!expect_count(statement, 2, 3)) return;
  if (shape.type2 == Type::kNone) return not_emulated();
  const Handler run = handlers_.convert(shape);
  const bool two_sources = (shape.type == Type::kF16x2 || shape.type == Type::kBF16x2 ||
                            shape.type == Type::kE4M3x2 || shape.type == Type::kE5M2x2) &&
                           shape.type2 == Type::kF32;
  if (run == nullptr || pair != two_sources) return not_emulated();
  const uint32_t from_size = row_size(shape.type2);
  const uint32_t to_size = row_size(shape.type);
  const auto read = [&](const SyntaxOperand& operand) {
    const Operand found = find_register(operand);
    if (found != kNoOperand && size_of(found) > from_size && !is_float(shape.type2)) {
      return resize(found, from_size, false);
    }
    return source(operand, from_size, shape.type2);
  };
  const Operand a = read(statement.operands[1]);
  const Operand b = pair ? read(statement.operands[2]) : kNoOperand;
  Operand d = find_register(statement.operands[0]);
  const bool widen = d != kNoOperand && size_of(d) > to_size && !is_float(shape.type);
  if (!widen) d = result(statement.operands[0], to_size);
  const Operand narrow = widen ? new_register(to_size) : d;
  Instruction& in = emit(run);
  in.d = narrow;
  in.a = a;
  in.b = b;
  in.option = convert_options(shape);
  in.option2 = static_cast<uint8_t>(static_cast<uint8_t>(shape.rounding) |
                                    (shape.to_integer && is_float(shape.type) ? 0x80 : 0));
  if (!widen) return;
  const Operand wide = resize(narrow, size_of(d), is_signed(shape.type));
  function_.code.back().d = d;
  (void)wide;
}

void Lowering::video(const Statement& statement, Shape shape) {
  shape.op = Op::kVideo4;
  const bool add = shape.combine == Combine::kAdd;
  if (shape.saturate || (shape.combine != Combine::kNone && !add) || shape.type2 != shape.type3) {
    return not_emulated();
  }
  if (!expect_count(statement, 4, 4)) return;
  shape.type = shape.type2;
  const Operand d = result(statement.operands[0], 4);
  const Operand a = source(statement.operands[1], 4, Type::kB32);
  const Operand b = source(statement.operands[2], 4, Type::kB32);
  const Operand c = source(statement.operands[3], 4, Type::kB32);
  Instruction& in = emit(handlers_.integer(shape));
  in.d = d;
  in.a = a;
  in.b = b;
  in.c = c;
  in.option = add ? 1 : 0;
}

}  // namespace rgpu::server::ptx
