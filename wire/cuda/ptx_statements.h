// ptx_statements: a PTX text as its header and the statements at module level, bodies unread.
//
// Threading: plain functions. Lifetime: names and positions refer to the text.
// Errors:    kInvalidArgument with the line; the text is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "wire/cuda/kernel_parameters.h"
#include "wire/status.h"

namespace rgpu::cuda {

enum class PtxLinkage : uint8_t { kPrivate, kExtern, kVisible, kWeak, kCommon };
enum class PtxSymbolKind : uint8_t { kKernel, kFunction, kVariable };

struct PtxStatement {
  PtxSymbolKind kind = PtxSymbolKind::kVariable;
  PtxLinkage linkage = PtxLinkage::kPrivate;
  std::string_view name;
  bool is_definition = false;  // Has a body; is not .extern.
  bool is_unsized = false;     // A variable `name[]`.
  bool is_shared = false;
  // All but its linkage: [begin, name's end) is the type of a variable, which several may share;
  // [declarator, end) the name and what follows it, without the last ';'.
  size_t begin = 0;
  size_t type_end = 0;
  size_t declarator = 0;
  size_t head_end = 0;  // Of a function: its '{' or ';'.
  size_t end = 0;
};

struct PtxStatements {
  PtxHeader header;
  std::vector<PtxStatement> symbols;  // In the text's order.
};

// Files, sections and pragmas at module level are left out: they are for debuggers.
[[nodiscard]] Result<PtxStatements> statements_of_ptx(std::string_view text);

}  // namespace rgpu::cuda
