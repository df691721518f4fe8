// Lowering: one function's statements become its code.
//
// Registers are numbered while code is emitted; allocate_rows() then gives them their rows.
//
// Threading: one thread.
// Lifetime:  for one function; the syntax and the symbols outlive it.
// Errors:    the first is kept and ends up in Function::error; lowering goes on without effect.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/cuda/emulated/ptx_context.h"
#include "server/cuda/emulated/ptx_syntax.h"

namespace rgpu::server::ptx {

// What a name outside of functions stands for.
struct Symbol {
  enum class Kind : uint8_t { kVariable, kShared, kFunction };
  Kind kind = Kind::kVariable;
  uint64_t address = 0;  // Of a variable
  uint32_t index = 0;    // Of a shared variable, in Program::shared.
  Function* function = nullptr;
  const FunctionSyntax* syntax = nullptr;
};

class SymbolTable {
 public:
  virtual ~SymbolTable() = default;
  [[nodiscard]] virtual const Symbol* find(std::string_view name) const = 0;
};

struct VirtualRegister {
  uint32_t size_bytes = 0;  // 0: a predicate.
};

class Lowering {
 public:
  Lowering(const FunctionSyntax& syntax, const SymbolTable& symbols, Program& program,
           const Kernel* kernel, Function& function);
  void run();

 private:
  struct Name {
    enum class Kind : uint8_t {
      kRegister,
      kRegisters,
      kLocal,
      kShared,
      kParameter,
      kPrototype,
      kTargets
    };
    Kind kind = Kind::kRegister;
    uint32_t index = 0;  // The register, the first of them, a shared variable, a prototype …
    uint32_t count = 1;
    uint32_t offset = 0;  // Of a local variable or a parameter.
    uint32_t size_bytes = 0;
    bool is_parameter = false;  // A local variable for .param: its address is a generic one.
  };
  struct Block {
    std::unordered_map<std::string_view, Name> names;
    std::unordered_map<std::string_view, Name> families;  // `%r` of `%r<14>`.
  };
  struct Address {
    Operand base = kNoOperand;
    int64_t offset = 0;
    Space space = Space::kGeneric;
    bool in_parameters = false;  // At a fixed place of the kernel's parameters.
    uint64_t room = 0;           // What lies behind that place.
  };
  struct Jump {
    size_t instruction = 0;
    std::string_view label;
    uint32_t block = 0;
  };
  using Method = void (Lowering::*)(const Statement&, Shape);

  // ptx_lowering.cc: names, registers, constants, the walk over the statements.
  void fail(std::string message);
  void not_emulated();
  void declare(const Declaration& declaration);
  void declare_formals();
  uint32_t reserve_local(uint64_t size_bytes, uint32_t alignment);
  const Name* find(std::string_view name) const;
  void statement(const Statement& statement);
  void instruction(const Statement& statement);
  void number_labels();
  void resolve_jumps();
  uint32_t label_target(std::string_view label, uint32_t block);
  Operand new_register(uint32_t size_bytes);
  [[nodiscard]] uint32_t size_of(Operand operand) const;
  Operand constant(uint32_t size_bytes, uint64_t value);
  Instruction& emit(Handler run);
  void emit_return();

  // ptx_operands.cc
  bool expect_count(const Statement& statement, size_t least, size_t most);
  Operand find_register(const SyntaxOperand& operand);
  Operand result(const SyntaxOperand& operand, uint32_t size_bytes);
  Operand source(const SyntaxOperand& operand, uint32_t size_bytes, Type type);
  Operand predicate(const SyntaxOperand& operand);
  Operand symbol_address(const SyntaxOperand& operand, uint32_t size_bytes);
  Operand named_address(const SyntaxOperand& operand, const Name& name, uint32_t size_bytes);
  Operand immediate(const SyntaxOperand& operand, uint32_t size_bytes, Type type);
  Address address(const SyntaxOperand& operand, Space space);
  Operand address_register(const Address& address);
  Operand resize(Operand operand, uint32_t size_bytes, bool is_signed);
  void put_address(Instruction& in, const Address& address);

  // ptx_lower_arithmetic.cc
  bool table_instruction(const Statement& statement, std::string_view base, const Shape& shape);
  void arithmetic(const Statement& statement, Shape shape, Op op, const char* pattern);
  void finish_arithmetic(Instruction& in, const Shape& shape);
  void lop3(const Statement& statement, Shape shape);
  void setp(const Statement& statement, Shape shape);
  void set(const Statement& statement, Shape shape);
  void selp(const Statement& statement, Shape shape);
  void slct(const Statement& statement, Shape shape);
  void mov(const Statement& statement, Shape shape);
  void cvt(const Statement& statement, Shape shape);
  void video(const Statement& statement, Shape shape);

  // ptx_lower_memory.cc
  void load(const Statement& statement, Shape shape);
  void store(const Statement& statement, Shape shape);
  void atomic(const Statement& statement, Shape shape);
  void reduction(const Statement& statement, Shape shape);
  void atomic_access(const SyntaxOperand* result, const Statement& statement, size_t first,
                     const Shape& shape);
  void cvta(const Statement& statement, Shape shape);
  void isspacep(const Statement& statement, Shape shape);
  void cp_async(const Statement& statement, const std::vector<std::string_view>& parts);
  void mbarrier(const Statement& statement, const std::vector<std::string_view>& parts);
  void mapa(const Statement& statement, Shape shape);

  // ptx_lower_control.cc
  bool control_instruction(const Statement& statement, const std::vector<std::string_view>& parts);
  void branch(const Statement& statement);
  void branch_index(const Statement& statement);
  void call(const Statement& statement);
  bool call_places(const SyntaxOperand& list, std::vector<Place>& places, bool results);
  void barrier(const Statement& statement, const Shape& shape, bool arrive, bool reduce);
  void warp_barrier(const Statement& statement);
  void shuffle(const Statement& statement, const Shape& shape);
  void vote(const Statement& statement, const Shape& shape);
  void match(const Statement& statement, const Shape& shape);
  void redux(const Statement& statement, const Shape& shape);
  void elect(const Statement& statement);
  void cluster_barrier(const std::vector<std::string_view>& parts);
  Operand members(const SyntaxOperand& operand);

  static const std::unordered_map<std::string_view, Method>& methods();

  const FunctionSyntax& syntax_;
  const SymbolTable& symbols_;
  Program& program_;
  const Kernel* kernel_;
  Function& function_;
  const HandlerTable& handlers_;

  std::vector<VirtualRegister> registers_;
  std::deque<Block> blocks_;  // All there were; `open_` holds those around this statement.
  std::vector<uint32_t> open_;
  uint32_t block_count_ = 0;
  std::unordered_map<std::string_view, std::vector<std::pair<uint32_t, uint32_t>>> labels_;
  std::vector<uint32_t> parents_;
  std::vector<Jump> jumps_;
  std::vector<std::pair<uint32_t, Jump>> table_jumps_;
  std::unordered_map<uint64_t, Operand> constants_[5];
  std::unordered_map<std::string_view, std::vector<std::string_view>> targets_;
  Operand carry_ = kNoOperand;
  const Statement* current_ = nullptr;
  Operand guard_ = kNoOperand;
  uint32_t sites_ = 0;
};

// Gives each register its row: those that live at the same time different ones.
void allocate_rows(Function& function, const std::vector<VirtualRegister>& registers);

}  // namespace rgpu::server::ptx
