// ptx_declaration: one declaration of a PTX text, parameter or variable: its name, size, alignment.
//
// Threading: plain functions. Lifetime: names refer to the text. Errors: kInvalidArgument with the
// line and what stands there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/cuda/ptx_lexer.h"
#include "wire/status.h"

namespace rgpu::cuda {

struct PtxType {
  uint64_t element_bytes = 0;  // With .v4, of all four.
  uint32_t align_bytes = 1;
  bool is_managed = false;
};

struct PtxDeclaration {
  std::string_view name;
  uint64_t size_bytes = 0;
  bool is_unsized = false;  // name[] without an initialiser.
};

// "PTX line 7: <what>, at '<token>'"
[[nodiscard]] Status ptx_error(const PtxLexer& lexer, std::string_view what);

// A number token, taken.
[[nodiscard]] Result<uint64_t> read_number(PtxLexer& lexer);
// A name, or one in quotes, taken.
[[nodiscard]] Result<std::string_view> read_name(PtxLexer& lexer);
// From '(' to behind its ')'.
[[nodiscard]] Status skip_parentheses(PtxLexer& lexer);

// From behind `.param` or `.global` to the name.
[[nodiscard]] Result<PtxType> read_type(PtxLexer& lexer);
// From the name to the ',', ';' or ')' behind it, over its initialiser.
[[nodiscard]] Result<PtxDeclaration> read_declarator(PtxLexer& lexer, const PtxType& type);

}  // namespace rgpu::cuda
