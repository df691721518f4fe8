// Syntax: PTX text as declarations, functions and statements, names not yet resolved.
//
// Threading: one thread.
// Lifetime:  everything points into the text.
// Errors:    kInvalidArgument with the line. Nesting, counts and sizes are bounded.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/cuda/emulated/ptx_types.h"
#include "wire/status.h"

namespace rgpu::server::ptx {

enum class Storage : uint8_t { kRegister, kGlobal, kShared, kLocal, kConst, kParameter };

struct SyntaxOperand {
  enum class Kind : uint8_t {
    kName,     // A register, a symbol, a label; `offset` is added
    kInteger,  // `integer`
    kFloat,    // `integer` holds the bits of a double
    kAddress,  // [name + offset] or [integer]
    kVector,   // {a, b}
    kList,     // (a, b) of a call
    kPair,     // p|q
    kSink,     // _
  };
  Kind kind = Kind::kSink;
  bool negated = false;  // !p
  bool generic = false;  // generic(symbol), in initialisers
  std::string_view name;
  uint64_t integer = 0;  // Of a name in an initializer: which of its bits; 0: all.
  int64_t offset = 0;
  std::vector<SyntaxOperand> parts;
};

struct Declaration {
  Storage storage = Storage::kRegister;
  Type type = Type::kNone;
  uint32_t vector = 1;
  uint32_t alignment = 0;  // 0: the type's own.
  uint32_t count = 1;      // %r<count>: names with a number behind
  bool numbered = false;
  bool is_array = false;
  bool open_array = false;  // x[]
  bool is_extern = false;
  bool is_weak = false;
  bool is_visible = false;
  bool is_managed = false;
  std::string_view name;
  uint64_t element_count = 1;
  std::vector<SyntaxOperand> initializer;  // Flat.
  uint32_t line = 0;

  [[nodiscard]] uint64_t size_bytes() const {
    return uint64_t{type_size(type)} * vector * element_count;
  }
  [[nodiscard]] uint32_t align_bytes() const {
    return alignment != 0 ? alignment : type_size(type) * vector;
  }
};

struct Statement {
  enum class Kind : uint8_t {
    kInstruction,
    kLabel,
    kOpen,
    kClose,
    kDeclaration,
    kTargets,
    kPrototype
  };
  Kind kind = Kind::kInstruction;
  bool guard_negated = false;
  std::string_view name;  // Opcode with suffixes, label
  std::string_view guard;
  uint32_t line = 0;
  std::vector<SyntaxOperand> operands;
  uint32_t index = 0;  // Of the declaration or prototype.
};

struct FunctionSyntax {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  bool is_extern = false;
  bool is_visible = false;
  bool is_weak = false;
  std::vector<Declaration> results;
  std::vector<Declaration> parameters;
  std::vector<Declaration> declarations;   // Of all statements kDeclaration.
  std::vector<FunctionSyntax> prototypes;  // .callprototype
  std::vector<Statement> body;
  std::array<uint32_t, 3> threads_max = {0, 0, 0};
  std::array<uint32_t, 3> threads_required = {0, 0, 0};
  uint32_t line = 0;
};

struct ModuleSyntax {
  uint32_t version = 0;  // 75 for 7.5
  uint32_t target = 0;   // 75 for sm_75
  std::vector<Declaration> variables;
  std::vector<FunctionSyntax> functions;
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
};

[[nodiscard]] Result<ModuleSyntax> parse_module(std::string_view text);

// Splits `name` at its dots: the opcode, then its suffixes.
[[nodiscard]] std::vector<std::string_view> split_opcode(std::string_view name);

// The type of a suffix without its dot; kNone if it is none.
[[nodiscard]] Type type_of(std::string_view suffix);

}  // namespace rgpu::server::ptx
