#include "wire/cuda/ptx_statements.h"

#include <utility>

#include "wire/cuda/ptx_declaration.h"
#include "wire/cuda/ptx_lexer.h"

namespace rgpu::cuda {
namespace {

using Kind = PtxToken::Kind;

class StatementReader {
 public:
  explicit StatementReader(std::string_view text) : lexer_(text) {}
  Result<PtxStatements> read(PtxHeader header);

 private:
  [[nodiscard]] bool at_end() const noexcept {
    return lexer_.token().kind == Kind::kEnd || lexer_.token().kind == Kind::kBad;
  }
  Status read_statement();
  Status read_variables(PtxLinkage linkage);
  Status read_function(PtxLinkage linkage, bool is_kernel);
  Status skip_statement();
  // The linkage word that stands here, taken.
  PtxLinkage take_linkage();

  PtxLexer lexer_;
  PtxStatements found_;
};

PtxLinkage StatementReader::take_linkage() {
  using Pair = std::pair<std::string_view, PtxLinkage>;
  for (const auto& [word, linkage] :
       {Pair{".extern", PtxLinkage::kExtern}, Pair{".visible", PtxLinkage::kVisible},
        Pair{".weak", PtxLinkage::kWeak}, Pair{".common", PtxLinkage::kCommon}}) {
    if (lexer_.token().is(word)) {
      lexer_.advance();
      return linkage;
    }
  }
  return PtxLinkage::kPrivate;
}

Result<PtxStatements> StatementReader::read(PtxHeader header) {
  found_.header = header;
  while (lexer_.token().kind != Kind::kEnd) {
    if (lexer_.token().kind == Kind::kBad) return ptx_error(lexer_, "a broken text");
    if (found_.symbols.size() >= kSymbolsMax) {
      return ptx_error(lexer_, "more than 1048576 functions and variables");
    }
    RGPU_RETURN_IF_ERROR(read_statement());
  }
  return std::move(found_);
}

Status StatementReader::read_statement() {
  const PtxLinkage linkage = take_linkage();
  const PtxToken& token = lexer_.token();
  if (token.is(".entry") || token.is(".func")) {
    return read_function(linkage, token.is(".entry"));
  }
  if (token.is(".global") || token.is(".const") || token.is(".shared") || token.is(".local")) {
    return read_variables(linkage);
  }
  if (token.is(".alias")) return ptx_error(lexer_, ".alias cannot be linked");
  return skip_statement();
}

Status StatementReader::skip_statement() {
  do {
    if (lexer_.token().is("{")) {
      if (!lexer_.skip_block()) return ptx_error(lexer_, "a block without an end");
    } else {
      lexer_.advance();
    }
  } while (lexer_.token().kind != Kind::kDirective && !at_end());
  return {};
}

Status StatementReader::read_variables(PtxLinkage linkage) {
  PtxStatement variable;
  variable.kind = PtxSymbolKind::kVariable;
  variable.linkage = linkage;
  variable.is_shared = lexer_.token().is(".shared");
  variable.begin = lexer_.position();
  lexer_.advance();
  Result<PtxType> type = read_type(lexer_);
  if (!type) return type.error();
  variable.type_end = lexer_.position();
  while (true) {
    variable.declarator = lexer_.position();
    Result<PtxDeclaration> declaration = read_declarator(lexer_, *type);
    if (!declaration) return declaration.error();
    variable.name = declaration->name;
    variable.is_unsized = declaration->is_unsized;
    variable.is_definition = linkage != PtxLinkage::kExtern;
    variable.end = lexer_.position();
    found_.symbols.push_back(variable);
    if (!lexer_.token().is(",")) break;
    lexer_.advance();
  }
  if (!lexer_.token().is(";")) return ptx_error(lexer_, "a variable without its ';'");
  lexer_.advance();
  return {};
}

Status StatementReader::read_function(PtxLinkage linkage, bool is_kernel) {
  PtxStatement function;
  function.kind = is_kernel ? PtxSymbolKind::kKernel : PtxSymbolKind::kFunction;
  // Kernels are found by name, whatever stands before them.
  function.linkage = is_kernel && linkage == PtxLinkage::kPrivate ? PtxLinkage::kVisible : linkage;
  function.begin = lexer_.position();
  lexer_.advance();
  if (lexer_.token().is(".attribute")) {
    lexer_.advance();
    RGPU_RETURN_IF_ERROR(skip_parentheses(lexer_));
  }
  if (lexer_.token().is("(")) RGPU_RETURN_IF_ERROR(skip_parentheses(lexer_));
  function.type_end = function.declarator = lexer_.position();
  Result<std::string_view> name = read_name(lexer_);
  if (!name) return name.error();
  function.name = *name;
  while (!lexer_.token().is("{") && !lexer_.token().is(";")) {
    if (at_end()) return ptx_error(lexer_, "a function without a body");
    // A kernel's .pragma ends with a ';' of its own.
    const bool is_pragma = lexer_.token().is(".pragma");
    while (is_pragma && !lexer_.token().is(";") && !at_end()) lexer_.advance();
    lexer_.advance();
  }
  function.head_end = function.end = lexer_.position();
  function.is_definition = lexer_.token().is("{") && linkage != PtxLinkage::kExtern;
  if (lexer_.token().is("{")) {
    PtxLexer inside = lexer_;
    if (!lexer_.skip_block()) return ptx_error(inside, "a body without an end");
    function.end = lexer_.position();
  } else {
    lexer_.advance();
  }
  found_.symbols.push_back(function);
  return {};
}

}  // namespace

Result<PtxStatements> statements_of_ptx(std::string_view text) {
  Result<PtxHeader> header = header_of_ptx(text);
  if (!header) return header.error();
  return StatementReader(text).read(*header);
}

}  // namespace rgpu::cuda
