// Operands of instructions: registers, constants, addresses.
#include <bit>
#include <charconv>

#include "server/cuda/emulated/ptx_lowering.h"
#include "server/cuda/emulated/ptx_rounding.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {

bool Lowering::expect_count(const Statement& statement, size_t least, size_t most) {
  if (statement.operands.size() >= least && statement.operands.size() <= most) return true;
  fail(std::string(statement.name.substr(0, 60)) + " with " +
       std::to_string(statement.operands.size()) + " operands");
  return false;
}

Operand Lowering::find_register(const SyntaxOperand& operand) {
  if (operand.kind != SyntaxOperand::Kind::kName) return kNoOperand;
  const Name* name = find(operand.name);
  if (name == nullptr) return kNoOperand;
  if (name->kind == Name::Kind::kRegister) return name->index;
  if (name->kind != Name::Kind::kRegisters) return kNoOperand;
  size_t digits = operand.name.size();
  while (digits > 0 && operand.name[digits - 1] >= '0' && operand.name[digits - 1] <= '9') --digits;
  uint32_t number = 0;
  const char* const end = operand.name.data() + operand.name.size();
  if (std::from_chars(operand.name.data() + digits, end, number).ec != std::errc() ||
      number >= name->count) {
    return kNoOperand;
  }
  return name->index + number;
}

Operand Lowering::result(const SyntaxOperand& operand, uint32_t size_bytes) {
  if (operand.kind == SyntaxOperand::Kind::kSink) return new_register(size_bytes);
  const Operand found = find_register(operand);
  if (found == kNoOperand || size_of(found) != size_bytes) {
    fail("'" + std::string(operand.name.substr(0, 60)) + "' is no register of " +
         std::to_string(size_bytes * 8) + " bits");
    return new_register(size_bytes);
  }
  return found;
}

Operand Lowering::predicate(const SyntaxOperand& operand) {
  if (operand.kind == SyntaxOperand::Kind::kInteger) {
    return constant(0, operand.negated == (operand.integer == 0) ? 1 : 0);
  }
  Operand found = find_register(operand);
  if (found != kNoOperand && size_of(found) != 0) found = kNoOperand;
  if (found == kNoOperand && operand.name == "%is_explicit_cluster") found = constant(0, 0);
  if (found == kNoOperand) {
    fail("'" + std::string(operand.name.substr(0, 60)) + "' is no predicate");
    return kNoOperand;
  }
  if (!operand.negated) return found;
  const Operand turned = new_register(0);
  Shape shape;
  shape.op = Op::kNot;
  shape.type = Type::kPred;
  Instruction& in = emit(handlers_.integer(shape));
  in.d = turned;
  in.a = found;
  return turned;
}

Operand Lowering::immediate(const SyntaxOperand& operand, uint32_t size_bytes, Type type) {
  uint64_t bits = operand.integer;
  if (operand.kind == SyntaxOperand::Kind::kFloat) {
    const double value = std::bit_cast<double>(bits);
    const bool is_nan = value != value;
    if (type == Type::kF16 || type == Type::kBF16) {
      bits = round_to(type == Type::kF16 ? kHalfFormat : kBfloatFormat, value, Rounding::kNearest);
    } else if (size_bytes == 4) {
      // A NaN keeps its payload.
      bits = is_nan ? (bits >> 32 & 0x8000'0000) | 0x7f80'0000 | (bits >> 29 & 0x7f'ffff)
                    : std::bit_cast<uint32_t>(static_cast<float>(value));
    }
  } else if (type == Type::kF32 && operand.integer != 0) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(bits)));
  } else if (type == Type::kF64 && operand.integer != 0) {
    bits = std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(bits)));
  }
  return constant(size_bytes, bits);
}

Operand Lowering::source(const SyntaxOperand& operand, uint32_t size_bytes, Type type) {
  switch (operand.kind) {
    case SyntaxOperand::Kind::kInteger:
    case SyntaxOperand::Kind::kFloat:
      return immediate(operand, size_bytes, type);
    case SyntaxOperand::Kind::kName:
      break;
    default:
      fail("an operand is neither register nor number");
      return kNoOperand;
  }
  if (size_bytes == 0) return predicate(operand);
  if (const Operand found = find_register(operand); found != kNoOperand) {
    if (size_of(found) == size_bytes && operand.offset == 0) return found;
    fail("register " + std::string(operand.name.substr(0, 60)) + " does not have " +
         std::to_string(size_bytes * 8) + " bits");
    return kNoOperand;
  }
  if (const SpecialRegister special = special_register(operand.name); special.run != nullptr) {
    const Operand value = new_register(special.size_bytes);
    Instruction& in = emit(special.run);
    in.d = value;
    in.immediate = special.immediate;
    return special.size_bytes == size_bytes ? value : resize(value, size_bytes, false);
  }
  return symbol_address(operand, size_bytes);
}

Operand Lowering::symbol_address(const SyntaxOperand& operand, uint32_t size_bytes) {
  if (size_bytes != 4 && size_bytes != 8) {
    fail("the address of " + std::string(operand.name.substr(0, 60)) + " in a narrow register");
    return kNoOperand;
  }
  if (const Name* name = find(operand.name)) return named_address(operand, *name, size_bytes);
  const Symbol* symbol = symbols_.find(operand.name);
  if (symbol == nullptr) {
    fail("'" + std::string(operand.name.substr(0, 60)) + "' is not declared");
    return kNoOperand;
  }
  switch (symbol->kind) {
    case Symbol::Kind::kVariable:
      return constant(size_bytes, symbol->address + static_cast<uint64_t>(operand.offset));
    case Symbol::Kind::kFunction:
      if (symbol->function == nullptr) {
        fail("function " + std::string(operand.name.substr(0, 60)) + " is not defined");
        return kNoOperand;
      }
      return constant(size_bytes, kCodeWindow | symbol->function->index);
    case Symbol::Kind::kShared:
      break;
  }
  Name shared;
  shared.kind = Name::Kind::kShared;
  shared.index = symbol->index;
  return named_address(operand, shared, size_bytes);
}

Operand Lowering::named_address(const SyntaxOperand& operand, const Name& name,
                                uint32_t size_bytes) {
  switch (name.kind) {
    case Name::Kind::kParameter:
      return constant(size_bytes,
                      kParameterWindow + name.offset + static_cast<uint64_t>(operand.offset));
    case Name::Kind::kShared: {
      const Operand d = new_register(size_bytes);
      Instruction& in = emit(shared_address_handler());
      in.d = d;
      in.target = name.index;
      in.immediate = operand.offset;
      in.option = static_cast<uint8_t>(size_bytes);
      function_.shared_variables.push_back(name.index);
      return d;
    }
    case Name::Kind::kLocal: {
      const Operand d = new_register(size_bytes);
      Instruction& in = emit(local_address_handler());
      in.d = d;
      in.immediate = name.offset + operand.offset;
      in.option = static_cast<uint8_t>(size_bytes);
      in.option2 = name.is_parameter ? 1 : 0;
      return d;
    }
    default:
      fail("'" + std::string(operand.name.substr(0, 60)) + "' has no address");
      return kNoOperand;
  }
}

Operand Lowering::resize(Operand operand, uint32_t size_bytes, bool is_signed) {
  const auto type_for = [is_signed](uint32_t size) {
    switch (size) {
      case 2:
        return is_signed ? Type::kS16 : Type::kU16;
      case 4:
        return is_signed ? Type::kS32 : Type::kU32;
      default:
        return is_signed ? Type::kS64 : Type::kU64;
    }
  };
  const uint32_t from = size_of(operand);
  if (from == size_bytes || (operand & kConstantBit) != 0) return operand;
  if (from == 0 || from > 8 || size_bytes == 0 || size_bytes > 8) {
    fail("an operand has the wrong size");
    return operand;
  }
  Shape shape;
  shape.op = Op::kCvt;
  shape.type = type_for(size_bytes);
  shape.type2 = type_for(from);
  const Operand d = new_register(size_bytes);
  Instruction& in = emit(handlers_.convert(shape));
  in.d = d;
  in.a = operand;
  return d;
}

Lowering::Address Lowering::address(const SyntaxOperand& operand, Space space) {
  Address result;
  result.space = space;
  if (operand.kind != SyntaxOperand::Kind::kAddress) {
    fail("an address expected");
    return result;
  }
  const uint32_t width = space == Space::kShared ? 4 : 8;
  if (operand.name.empty()) {
    result.base = constant(width, operand.integer);
    return result;
  }
  SyntaxOperand name = operand;
  name.kind = SyntaxOperand::Kind::kName;
  if (const Operand found = find_register(name); found != kNoOperand) {
    result.base = resize(found, width, false);
    result.offset = operand.offset;
    return result;
  }
  const Name* declared = find(operand.name);
  if (declared != nullptr && declared->kind == Name::Kind::kLocal) {
    result.space = Space::kLocal;
    result.offset = declared->offset + operand.offset;
    return result;
  }
  if (declared != nullptr && declared->kind == Name::Kind::kParameter && space == Space::kParam) {
    result.in_parameters = true;
    result.offset = declared->offset + operand.offset;
    const int64_t room = int64_t{kernel_->parameter_size_bytes} - result.offset;
    result.room = result.offset < 0 || room < 0 ? 0 : static_cast<uint64_t>(room);
    return result;
  }
  result.base = symbol_address(name, width);
  return result;
}

// For instructions that take any address: base and offset in one register.
Operand Lowering::address_register(const Address& address) {
  const uint32_t width = address.space == Space::kShared ? 4 : 8;
  if (address.base == kNoOperand) {
    const Operand d = new_register(8);
    Instruction& in = emit(local_address_handler());
    in.d = d;
    in.immediate = address.offset;
    in.option = 8;
    return d;
  }
  if (address.offset == 0) return address.base;
  Shape shape;
  shape.op = Op::kAdd;
  shape.type = width == 4 ? Type::kU32 : Type::kU64;
  const Operand offset = constant(width, static_cast<uint64_t>(address.offset));
  const Operand d = new_register(width);
  Instruction& in = emit(handlers_.integer(shape));
  in.d = d;
  in.a = address.base;
  in.b = offset;
  return d;
}

void Lowering::put_address(Instruction& in, const Address& address) {
  in.a = address.base;
  in.immediate = address.offset;
  in.option2 = static_cast<uint8_t>(address.space);
  in.site = static_cast<uint16_t>(sites_++ % kIntervalCount);
}

}  // namespace rgpu::server::ptx
