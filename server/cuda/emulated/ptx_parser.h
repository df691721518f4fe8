// Parser: the recursive descent behind parse_module().
//
// Threading: one thread.
// Lifetime:  for one text.
// Errors:    the first one is kept in `error_`; parsing then runs into the end at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/cuda/emulated/ptx_lexer.h"
#include "server/cuda/emulated/ptx_syntax.h"

namespace rgpu::server::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { advance(); }
  Result<ModuleSyntax> module();

 private:
  struct Linkage {
    bool is_extern = false;
    bool is_visible = false;
    bool is_weak = false;
  };

  void advance();
  bool accept(char punctuation);
  void expect(char punctuation);
  std::string_view expect_word(const char* what);
  uint64_t expect_integer(const char* what);
  void fail(std::string message);
  [[nodiscard]] bool failed() const { return !error_.ok(); }
  void skip_to(char punctuation);
  void skip_braces();

  void directive(ModuleSyntax& module);
  void version(ModuleSyntax& module);
  void target(ModuleSyntax& module);
  void function(ModuleSyntax& module, const Linkage& linkage, bool is_entry);
  void function_directives(FunctionSyntax& function);
  void body(FunctionSyntax& function);
  bool body_directive(FunctionSyntax& function);
  void labelled(FunctionSyntax& function, std::string_view label);
  void instruction(FunctionSyntax& function);
  std::vector<Declaration> parameters();
  bool storage_of(std::string_view directive, Storage& storage) const;
  // After the storage directive, to the semicolon: one for each name.
  std::vector<Declaration> declarations(Storage storage, const Linkage& linkage);
  Declaration declaration_head(Storage storage, const Linkage& linkage);
  void declaration_name(Declaration& declaration);
  void dimensions(Declaration& declaration);
  void initializer(std::vector<SyntaxOperand>& values, int depth);

  SyntaxOperand operand(int depth);
  SyntaxOperand name_operand();
  SyntaxOperand number(bool negative);
  SyntaxOperand address(int depth);
  std::vector<SyntaxOperand> operand_list(char end, int depth);
  int64_t offset();

  Lexer lexer_;
  Token token_;
  Status error_;
  size_t operand_count_ = 0;
};

}  // namespace rgpu::server::ptx
