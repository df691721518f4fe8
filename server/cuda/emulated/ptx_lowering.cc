#include "server/cuda/emulated/ptx_lowering.h"

#include <algorithm>
#include <cstring>

#include "server/cuda/emulated/ptx_shape.h"
#include "server/cuda/emulated/ptx_single.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint64_t kLocalSizeMax = 1 << 19;  // As CUDA: 512 KiB a thread.
constexpr size_t kCodeSizeMax = 1 << 22;
constexpr size_t kConstantsSizeMax = size_t{1} << 28;

uint32_t register_size(const Declaration& declaration) {
  return declaration.type == Type::kPred ? 0 : std::max(2U, type_size(declaration.type));
}

}  // namespace

Lowering::Lowering(const FunctionSyntax& syntax, const SymbolTable& symbols, Program& program,
                   const Kernel* kernel, Function& function)
    : syntax_(syntax),
      symbols_(symbols),
      program_(program),
      kernel_(kernel),
      function_(function),
      handlers_(handlers()) {}

void Lowering::fail(std::string message) {
  if (!function_.error.empty()) return;
  function_.error =
      (kernel_ != nullptr ? "kernel " : "function ") + function_.name + ": " + std::move(message);
  if (current_ != nullptr) function_.error += " (PTX line " + std::to_string(current_->line) + ")";
}

void Lowering::not_emulated() {
  fail(std::string(current_->name.substr(0, 100)) + " is not emulated");
}

void Lowering::run() {
  blocks_.emplace_back();
  parents_.push_back(0);
  open_.push_back(0);
  declare_formals();
  // Formals that are registers are set by the call: this instruction stands for that.
  Instruction& entry = emit(nothing_handler());
  for (const Place& place : function_.formals) {
    if (!place.in_register) continue;
    function_.extra_operands.push_back(place.offset);
    ++entry.extra_results;
  }
  if (entry.extra_results == 0) function_.code.clear();
  number_labels();
  for (const Statement& each : syntax_.body) {
    if (!function_.error.empty()) return;
    current_ = &each;
    statement(each);
    if (function_.code.size() > kCodeSizeMax || function_.constants.size() > kConstantsSizeMax) {
      fail("the function is too large");
    }
  }
  // Falling off the end is a return.
  guard_ = kNoOperand;
  current_ = nullptr;
  emit_return();
  for (auto& [name, places] : labels_) {
    for (auto& [block, position] : places)
      position = std::min<uint32_t>(position, static_cast<uint32_t>(function_.code.size()) - 1);
  }
  resolve_jumps();
  if (function_.error.empty()) allocate_rows(function_, registers_);
}

void Lowering::declare_formals() {
  const auto declare_all = [this](const std::vector<Declaration>& formals,
                                  std::vector<Place>& places) {
    for (size_t i = 0; i < formals.size(); ++i) {
      const Declaration& formal = formals[i];
      Place place;
      if (kernel_ != nullptr) {
        const Parameter& parameter = kernel_->parameters[i];
        blocks_[0].names[formal.name] = {Name::Kind::kParameter, 0, 1, parameter.offset_bytes,
                                         parameter.size_bytes};
        continue;
      }
      if (formal.storage == Storage::kRegister) {
        place.in_register = true;
        place.size_bytes = register_size(formal);
        place.offset = new_register(place.size_bytes);
        blocks_[0].names[formal.name] = {Name::Kind::kRegister, place.offset, 1, 0,
                                         place.size_bytes};
      } else {
        place.size_bytes =
            static_cast<uint32_t>(std::min<uint64_t>(formal.size_bytes(), kLocalSizeMax));
        place.offset = reserve_local(formal.size_bytes(), formal.align_bytes());
        blocks_[0].names[formal.name] = {Name::Kind::kLocal, 0,   1, place.offset,
                                         place.size_bytes,   true};
      }
      places.push_back(place);
    }
  };
  declare_all(syntax_.results, function_.formal_results);
  declare_all(syntax_.parameters, function_.formals);
}

uint32_t Lowering::reserve_local(uint64_t size_bytes, uint32_t alignment) {
  const uint64_t begin =
      (uint64_t{function_.local_size_bytes} + alignment - 1) / alignment * alignment;
  if (size_bytes > kLocalSizeMax || begin + size_bytes > kLocalSizeMax) {
    fail("more than 512 KiB of local memory");
    return 0;
  }
  function_.local_size_bytes = static_cast<uint32_t>(begin + size_bytes);
  return static_cast<uint32_t>(begin);
}

void Lowering::declare(const Declaration& declaration) {
  Block& block = blocks_[open_.back()];
  Name name;
  name.size_bytes = static_cast<uint32_t>(std::min<uint64_t>(declaration.size_bytes(), UINT32_MAX));
  switch (declaration.storage) {
    case Storage::kRegister:
      if (declaration.vector != 1 || declaration.is_array)
        return fail("registers of vectors are not emulated");
      if (registers_.size() + declaration.count > (1 << 21)) return fail("too many registers");
      name.kind = declaration.numbered ? Name::Kind::kRegisters : Name::Kind::kRegister;
      name.index = static_cast<uint32_t>(registers_.size());
      name.count = declaration.count;
      registers_.resize(registers_.size() + declaration.count,
                        VirtualRegister{register_size(declaration)});
      break;
    case Storage::kLocal:
    case Storage::kParameter:
      name.kind = Name::Kind::kLocal;
      name.is_parameter = declaration.storage == Storage::kParameter;
      name.offset = reserve_local(declaration.size_bytes(), declaration.align_bytes());
      break;
    case Storage::kShared:
      name.kind = Name::Kind::kShared;
      name.index = static_cast<uint32_t>(program_.shared.size());
      program_.shared.push_back({std::string(declaration.name), name.size_bytes,
                                 declaration.align_bytes(), declaration.open_array});
      break;
    default:
      return;  // The module has those.
  }
  (declaration.numbered ? block.families : block.names)[declaration.name] = name;
}

const Lowering::Name* Lowering::find(std::string_view name) const {
  // `%r12` may be one of `%r<14>`.
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const std::string_view stem = name.substr(0, digits);
  for (auto block = open_.rbegin(); block != open_.rend(); ++block) {
    const Block& around = blocks_[*block];
    if (const auto found = around.names.find(name); found != around.names.end()) {
      return &found->second;
    }
    if (digits == name.size()) continue;
    if (const auto found = around.families.find(stem); found != around.families.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

void Lowering::statement(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::kOpen:
      open_.push_back(static_cast<uint32_t>(blocks_.size()));
      blocks_.emplace_back();
      return;
    case Statement::Kind::kClose:
      if (open_.size() > 1) {
        blocks_[open_.back()] = {};
        open_.pop_back();
      }
      return;
    case Statement::Kind::kDeclaration:
      return declare(syntax_.declarations[statement.index]);
    case Statement::Kind::kLabel:
      for (auto& [block, position] : labels_[statement.name]) {
        if (block == open_.back()) position = static_cast<uint32_t>(function_.code.size());
      }
      return;
    case Statement::Kind::kPrototype:
      blocks_[open_.back()].names[statement.name] = {Name::Kind::kPrototype, statement.index, 1, 0,
                                                     0};
      return;
    case Statement::Kind::kTargets:
      return;
    case Statement::Kind::kInstruction:
      return instruction(statement);
  }
}

void Lowering::instruction(const Statement& statement) {
  guard_ = kNoOperand;
  if (!statement.guard.empty()) {
    SyntaxOperand name;
    name.kind = SyntaxOperand::Kind::kName;
    name.name = statement.guard;
    guard_ = predicate(name);
    if (guard_ == kNoOperand)
      return fail("predicate " + std::string(statement.guard) + " is not known");
  }
  const std::vector<std::string_view> parts = split_opcode(statement.name);
  if (control_instruction(statement, parts)) return;
  const std::string_view base = parts[0];
  if (base == "cp") return cp_async(statement, parts);
  const std::optional<Shape> shape = parse_shape(std::span(parts).subspan(1));
  if (!shape) return not_emulated();
  if (table_instruction(statement, base, *shape)) return;
  const auto method = methods().find(base);
  if (method == methods().end()) return not_emulated();
  (this->*method->second)(statement, *shape);
}

const std::unordered_map<std::string_view, Lowering::Method>& Lowering::methods() {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"lop3", &Lowering::lop3}, {"setp", &Lowering::setp},         {"set", &Lowering::set},
      {"selp", &Lowering::selp}, {"slct", &Lowering::slct},         {"mov", &Lowering::mov},
      {"cvt", &Lowering::cvt},   {"ld", &Lowering::load},           {"ldu", &Lowering::load},
      {"st", &Lowering::store},  {"atom", &Lowering::atomic},       {"red", &Lowering::reduction},
      {"cvta", &Lowering::cvta}, {"isspacep", &Lowering::isspacep}, {"vabsdiff4", &Lowering::video},
      {"mapa", &Lowering::mapa}, {"getctarank", &Lowering::mapa}};
  return kMethods;
}

// Labels belong to their block: inline assembly brings the same names again and again.
void Lowering::number_labels() {
  std::vector<uint32_t> around = {0};
  uint32_t count = 1;
  for (const Statement& each : syntax_.body) {
    if (each.kind == Statement::Kind::kOpen) {
      parents_.push_back(around.back());
      around.push_back(count++);
    } else if (each.kind == Statement::Kind::kClose && around.size() > 1) {
      around.pop_back();
    } else if (each.kind == Statement::Kind::kLabel) {
      labels_[each.name].emplace_back(around.back(), 0);
    } else if (each.kind == Statement::Kind::kTargets) {
      for (const SyntaxOperand& target : each.operands) targets_[each.name].push_back(target.name);
    }
  }
}

uint32_t Lowering::label_target(std::string_view label, uint32_t block) {
  const auto found = labels_.find(label);
  if (found != labels_.end()) {
    for (uint32_t at = block;; at = parents_[at]) {
      for (const auto& [owner, position] : found->second) {
        if (owner == at) return position;
      }
      if (at == 0) break;
    }
  }
  fail("label " + std::string(label.substr(0, 60)) + " is not known");
  return 0;
}

void Lowering::resolve_jumps() {
  for (const Jump& jump : jumps_) {
    function_.code[jump.instruction].target = label_target(jump.label, jump.block);
  }
  for (const auto& [table, jump] : table_jumps_) {
    function_.branch_tables[table].push_back(label_target(jump.label, jump.block));
  }
}

Operand Lowering::new_register(uint32_t size_bytes) {
  registers_.push_back({size_bytes});
  return static_cast<Operand>(registers_.size() - 1);
}

uint32_t Lowering::size_of(Operand operand) const {
  return operand < registers_.size() ? registers_[operand].size_bytes : 0;
}

// One row for each value and width: predicates are one word, all or none.
Operand Lowering::constant(uint32_t size_bytes, uint64_t value) {
  const uint32_t slot = size_bytes == 0   ? 0
                        : size_bytes == 2 ? 1
                        : size_bytes == 4 ? 2
                        : size_bytes == 8 ? 3
                                          : 4;
  if (size_bytes == 0) value = value != 0 ? kAllLanes : 0;
  if (size_bytes == 2) value &= 0xffff;
  if (size_bytes == 4) value &= 0xffff'ffff;
  const auto [found, is_new] = constants_[slot].try_emplace(value, 0);
  if (is_new) {
    std::vector<std::byte>& rows = function_.constants;
    rows.resize((rows.size() + 63) / 64 * 64);
    found->second = static_cast<Operand>(rows.size()) | kConstantBit;
    const uint32_t element = size_bytes == 0 ? 4 : size_bytes;
    const uint32_t count = size_bytes == 0 ? 1 : kLanes;
    const size_t begin = rows.size();
    rows.resize(begin + size_t{element} * count);
    for (uint32_t i = 0; i < count; ++i) {
      std::memcpy(rows.data() + begin + size_t{i} * element, &value, std::min(element, 8U));
    }
  }
  return found->second;
}

void Lowering::emit_return() {
  Instruction& in = emit(nullptr);
  in.kind = kernel_ != nullptr ? Kind::kExit : Kind::kReturn;
  if (in.kind == Kind::kExit) return;
  in.extra = static_cast<uint32_t>(function_.extra_operands.size());
  for (const Place& place : function_.formal_results) {
    if (!place.in_register) continue;
    function_.extra_operands.push_back(place.offset);
    ++in.extra_sources;
  }
}

Instruction& Lowering::emit(Handler run) {
  Instruction& in = function_.code.emplace_back();
  in.run = run;
  in.guard = guard_;
  in.guard_negated = guard_ != kNoOperand && current_->guard_negated;
  in.line = current_ != nullptr ? current_->line : 0;
  return in;
}

}  // namespace rgpu::server::ptx
