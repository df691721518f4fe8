#include <algorithm>
#include <charconv>
#include <utility>

#include "wire/cuda/kernel_parameters.h"
#include "wire/cuda/ptx_declaration.h"
#include "wire/cuda/ptx_lexer.h"
#include "wire/cuda/ptx_shared.h"

namespace rgpu::cuda {
namespace {

using Kind = PtxToken::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "9.0" is 90.
Result<uint32_t> read_version(PtxLexer& lexer) {
  const std::string_view text = lexer.token().text;
  const size_t dot = text.find('.');
  // One digit behind the dot, one or two before it.
  const bool is_version = lexer.token().kind == Kind::kNumber && (dot == 1 || dot == 2) &&
                          dot + 2 == text.size() && is_digit(text[0]) && is_digit(text[dot - 1]) &&
                          is_digit(text[dot + 1]);
  if (!is_version) return ptx_error(lexer, "no version");
  uint32_t version = 0;
  for (const char c : text) {
    if (c != '.') version = version * 10 + static_cast<uint32_t>(c - '0');
  }
  lexer.advance();
  return version;
}

// "sm_90a"
Result<Arch> read_target(PtxLexer& lexer) {
  constexpr std::string_view kPrefix = "sm_";
  const std::string_view text = lexer.token().text;
  const Status error = ptx_error(lexer, "no target");
  if (lexer.token().kind != Kind::kWord || !text.starts_with(kPrefix)) return error;
  Arch arch;
  const char* const end = text.data() + text.size();
  const auto [suffix, code] = std::from_chars(text.data() + kPrefix.size(), end, arch.capability);
  if (code != std::errc() || arch.capability > 9999 || end - suffix > 1) return error;
  if (suffix != end) {
    if (*suffix != 'a' && *suffix != 'f') return error;
    arch.variant = *suffix == 'a' ? ArchVariant::kSpecific : ArchVariant::kFamily;
  }
  lexer.advance();
  return arch;
}

class PtxReader {
 public:
  explicit PtxReader(std::string_view text) : text_(text), lexer_(text) {}

  Result<PtxHeader> read_header();
  Result<ImageFacts> read();

 private:
  Status read_statement();
  Status read_variables(VariableSpace space, bool is_shared);
  Status read_kernel();
  Status read_function();
  Status read_parameters(KernelLayout& kernel);
  Status read_block(std::array<uint32_t, 3>& block);
  Status read_tuning(KernelLayout& kernel);
  // At a '{' or ';'. Returns whether there was a body, which is noted.
  Result<bool> read_body(std::string_view name, bool is_kernel);
  Status skip_statement();

  std::string_view text_;
  PtxLexer lexer_;
  bool is_extern_ = false;
  ImageFacts facts_;
  PtxShared shared_{text_};
};

Result<PtxHeader> PtxReader::read_header() {
  if (!lexer_.token().is(".version")) return ptx_error(lexer_, "no .version");
  lexer_.advance();
  Result<uint32_t> version = read_version(lexer_);
  if (!version) return version.error();
  if (!lexer_.token().is(".target")) return ptx_error(lexer_, "no .target");
  lexer_.advance();
  Result<Arch> arch = read_target(lexer_);
  if (!arch) return arch.error();
  return PtxHeader{*version, *arch};
}

Result<ImageFacts> PtxReader::read() {
  Result<PtxHeader> header = read_header();
  if (!header) return header.error();
  facts_.ptx_version = header->version;
  facts_.arch = header->arch;
  while (lexer_.token().kind != Kind::kEnd) {
    if (lexer_.token().kind == Kind::kBad) return ptx_error(lexer_, "a broken text");
    if (facts_.variables.size() + shared_.size() > kSymbolsMax) {
      return ptx_error(lexer_, "more than 1048576 functions and variables");
    }
    RGPU_RETURN_IF_ERROR(read_statement());
  }
  RGPU_RETURN_IF_ERROR(shared_.finish(facts_.kernels));
  return std::move(facts_);
}

// Statements begin with a directive. An unknown one ends where the next begins.
Status PtxReader::read_statement() {
  const std::string_view word = lexer_.token().text;
  const bool is_directive = lexer_.token().kind == Kind::kDirective;
  if (is_directive && (word == ".visible" || word == ".weak" || word == ".common")) {
    lexer_.advance();
    return {};
  }
  if (is_directive && word == ".extern") {
    is_extern_ = true;
    lexer_.advance();
    return {};
  }
  Status status;
  if (is_directive && word == ".entry") {
    status = read_kernel();
  } else if (is_directive && word == ".func") {
    status = read_function();
  } else if (is_directive && (word == ".global" || word == ".const" || word == ".shared")) {
    status = read_variables(word == ".const" ? VariableSpace::kConstant : VariableSpace::kGlobal,
                            word == ".shared");
  } else {
    status = skip_statement();
  }
  is_extern_ = false;
  return status;
}

Status PtxReader::skip_statement() {
  do {
    if (lexer_.token().is("{")) {
      if (!lexer_.skip_block()) return ptx_error(lexer_, "a block without an end");
    } else {
      lexer_.advance();
    }
  } while (lexer_.token().kind != Kind::kDirective && lexer_.token().kind != Kind::kEnd &&
           lexer_.token().kind != Kind::kBad);
  return {};
}

Status PtxReader::read_variables(VariableSpace space, bool is_shared) {
  lexer_.advance();
  Result<PtxType> type = read_type(lexer_);
  if (!type) return type.error();
  while (true) {
    Result<PtxDeclaration> variable = read_declarator(lexer_, *type);
    if (!variable) return variable.error();
    if (is_shared && !is_extern_ && !variable->is_unsized) {
      shared_.add_variable(*variable, type->align_bytes);
    } else if (!is_shared && !is_extern_) {
      facts_.variables.push_back({std::string(variable->name), space, type->is_managed,
                                  type->align_bytes, variable->size_bytes});
    }
    if (!lexer_.token().is(",")) break;
    lexer_.advance();
  }
  if (!lexer_.token().is(";")) return ptx_error(lexer_, "a variable without its ';'");
  lexer_.advance();
  return {};
}

Status PtxReader::read_parameters(KernelLayout& kernel) {
  uint64_t end = 0;
  lexer_.advance();
  while (!lexer_.token().is(")")) {
    if (!lexer_.token().is(".param")) return ptx_error(lexer_, "no .param");
    lexer_.advance();
    Result<PtxType> type = read_type(lexer_);
    if (!type) return type.error();
    Result<PtxDeclaration> parameter = read_declarator(lexer_, *type);
    if (!parameter) return parameter.error();
    if (parameter->is_unsized) return ptx_error(lexer_, "a parameter without a size");
    const uint64_t offset = (end + type->align_bytes - 1) / type->align_bytes * type->align_bytes;
    end = offset + parameter->size_bytes;
    if (end > kParameterBytesMax) {
      return ptx_error(lexer_, "more than 32764 bytes of parameters");
    }
    kernel.parameters.push_back(
        {static_cast<uint32_t>(offset), static_cast<uint32_t>(parameter->size_bytes)});
    if (lexer_.token().is(",")) {
      lexer_.advance();
    } else if (!lexer_.token().is(")")) {
      return ptx_error(lexer_, "a parameter without ',' or ')'");
    }
  }
  lexer_.advance();
  kernel.parameters_size_bytes = static_cast<uint32_t>(end);
  return {};
}

Status PtxReader::read_block(std::array<uint32_t, 3>& block) {
  block = {1, 1, 1};
  lexer_.advance();
  for (uint32_t& extent : block) {
    Result<uint64_t> read = read_number(lexer_);
    if (!read) return read.error();
    if (*read > UINT32_MAX) return ptx_error(lexer_, "a block beyond 32 bits");
    extent = static_cast<uint32_t>(*read);
    if (!lexer_.token().is(",")) break;
    lexer_.advance();
  }
  return {};
}

// What stands between the parameters and the body.
Status PtxReader::read_tuning(KernelLayout& kernel) {
  while (!lexer_.token().is("{") && !lexer_.token().is(";")) {
    if (lexer_.token().kind == Kind::kEnd || lexer_.token().kind == Kind::kBad) {
      return ptx_error(lexer_, "a kernel without a body");
    }
    if (lexer_.token().is(".maxntid")) {
      RGPU_RETURN_IF_ERROR(read_block(kernel.block_max));
    } else if (lexer_.token().is(".reqntid")) {
      RGPU_RETURN_IF_ERROR(read_block(kernel.block_required));
    } else if (lexer_.token().is(".pragma")) {
      while (!lexer_.token().is(";") && lexer_.token().kind != Kind::kEnd) lexer_.advance();
      lexer_.advance();
    } else {
      lexer_.advance();
    }
  }
  return {};
}

Result<bool> PtxReader::read_body(std::string_view name, bool is_kernel) {
  if (!lexer_.token().is("{")) {
    lexer_.advance();
    return false;
  }
  const size_t start = lexer_.position();
  if (!lexer_.skip_block()) return ptx_error(lexer_, "a body without an end");
  shared_.add_body(name, is_kernel, start, lexer_.position());
  return true;
}

Status PtxReader::read_kernel() {
  lexer_.advance();
  Result<std::string_view> name = read_name(lexer_);
  if (!name) return name.error();
  KernelLayout kernel;
  kernel.name = std::string(*name);
  if (lexer_.token().is("(")) RGPU_RETURN_IF_ERROR(read_parameters(kernel));
  RGPU_RETURN_IF_ERROR(read_tuning(kernel));
  Result<bool> has_body = read_body(*name, true);
  if (!has_body) return has_body.error();
  if (*has_body) facts_.kernels.push_back(std::move(kernel));
  return {};
}

Status PtxReader::read_function() {
  lexer_.advance();
  if (lexer_.token().is(".attribute")) {
    lexer_.advance();
    RGPU_RETURN_IF_ERROR(skip_parentheses(lexer_));
  }
  if (lexer_.token().is("(")) RGPU_RETURN_IF_ERROR(skip_parentheses(lexer_));
  Result<std::string_view> name = read_name(lexer_);
  if (!name) return name.error();
  while (!lexer_.token().is("{") && !lexer_.token().is(";")) {
    if (lexer_.token().kind == Kind::kEnd || lexer_.token().kind == Kind::kBad) {
      return ptx_error(lexer_, "a function without a body");
    }
    lexer_.advance();
  }
  Result<bool> has_body = read_body(*name, false);
  return has_body ? Status() : has_body.error();
}

}  // namespace

Result<PtxHeader> header_of_ptx(std::string_view text) { return PtxReader(text).read_header(); }

Result<ImageFacts> facts_of_ptx(std::string_view text) { return PtxReader(text).read(); }

}  // namespace rgpu::cuda
