#include "wire/cuda/ptx_declaration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

constexpr uint64_t kVariableBytesMax = uint64_t{1} << 40;
constexpr uint64_t kAlignMax = 4096;

// 0 where it is not a type.
uint64_t type_size_bytes(std::string_view type) {
  using Entry = std::pair<std::string_view, uint64_t>;
  static constexpr std::array kTypes{
      Entry{".b64", 8},    Entry{".u64", 8},     Entry{".s64", 8},       Entry{".f64", 8},
      Entry{".b32", 4},    Entry{".u32", 4},     Entry{".s32", 4},       Entry{".f32", 4},
      Entry{".b8", 1},     Entry{".u8", 1},      Entry{".s8", 1},        Entry{".b16", 2},
      Entry{".u16", 2},    Entry{".s16", 2},     Entry{".f16", 2},       Entry{".bf16", 2},
      Entry{".f16x2", 4},  Entry{".bf16x2", 4},  Entry{".tf32", 4},      Entry{".b128", 16},
      Entry{".texref", 8}, Entry{".surfref", 8}, Entry{".samplerref", 8}};
  const auto* const found = std::ranges::find(kTypes, type, &Entry::first);
  return found == kTypes.end() ? 0 : found->second;
}

// 0 where it is not a vector's length.
uint64_t vector_length(std::string_view text) {
  return text == ".v2" ? 2 : text == ".v4" ? 4 : text == ".v8" ? 8 : 0;
}

bool is_space(std::string_view text) {
  return text == ".global" || text == ".const" || text == ".shared" || text == ".local" ||
         text == ".generic" || text == ".param";
}

Result<uint32_t> read_align(PtxLexer& lexer) {
  lexer.advance();
  Result<uint64_t> align = read_number(lexer);
  if (!align) return align.error();
  if (*align == 0 || *align > kAlignMax || (*align & (*align - 1)) != 0) {
    return ptx_error(lexer, "an alignment that is no power of two up to 4096");
  }
  return static_cast<uint32_t>(*align);
}

// How many entries the outermost braces hold; the lexer stands at '{' and is taken behind '}'.
Result<uint64_t> count_entries(PtxLexer& lexer) {
  uint64_t depth = 0;
  uint64_t entries = 0;
  bool is_entry = false;
  do {
    const PtxToken& token = lexer.token();
    if (token.kind == PtxToken::Kind::kEnd || token.kind == PtxToken::Kind::kBad) {
      return ptx_error(lexer, "an initialiser without an end");
    }
    const bool closes = token.is("}") || token.is(")");
    if (closes) --depth;
    if (depth == 1 && token.is(",")) {
      is_entry = false;
    } else if (depth >= 1 && !is_entry) {
      is_entry = true;
      ++entries;
    }
    if (token.is("{") || token.is("(")) ++depth;
    lexer.advance();
  } while (depth > 0);
  return entries;
}

// From behind '='. Returns the entries of braces where `counts`, else 0.
Result<uint64_t> skip_initialiser(PtxLexer& lexer, bool counts) {
  if (lexer.token().is("{")) {
    if (counts) return count_entries(lexer);
    if (!lexer.skip_block()) return ptx_error(lexer, "an initialiser without an end");
    return uint64_t{0};
  }
  while (!lexer.token().is(",") && !lexer.token().is(";")) {
    if (lexer.token().kind == PtxToken::Kind::kEnd || lexer.token().kind == PtxToken::Kind::kBad) {
      return ptx_error(lexer, "an initialiser without an end");
    }
    if (lexer.token().is("(")) {
      RGPU_RETURN_IF_ERROR(skip_parentheses(lexer));
    } else {
      lexer.advance();
    }
  }
  return uint64_t{1};
}

}  // namespace

Status ptx_error(const PtxLexer& lexer, std::string_view what) {
  std::string found(lexer.token().text.substr(0, 40));
  for (char& c : found) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (lexer.token().kind == PtxToken::Kind::kEnd) found = "the end";
  return {Code::kInvalidArgument, "PTX line " + std::to_string(lexer.line()) + ": " +
                                      std::string(what) + ", at '" + found + "'"};
}

Result<uint64_t> read_number(PtxLexer& lexer) {
  std::string_view text = lexer.token().text;
  if (lexer.token().kind != PtxToken::Kind::kNumber) return ptx_error(lexer, "no number");
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  if (text.ends_with('U')) text.remove_suffix(1);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    return ptx_error(lexer, "no whole number");
  }
  lexer.advance();
  return value;
}

Result<std::string_view> read_name(PtxLexer& lexer) {
  const PtxToken token = lexer.token();
  if (token.kind != PtxToken::Kind::kWord && token.kind != PtxToken::Kind::kString) {
    return ptx_error(lexer, "no name");
  }
  if (token.text.empty() || token.text.size() > kSymbolNameBytesMax) {
    return ptx_error(lexer, "a name of " + std::to_string(token.text.size()) + " bytes");
  }
  lexer.advance();
  return token.text;
}

Status skip_parentheses(PtxLexer& lexer) {
  size_t depth = 0;
  do {
    if (lexer.token().kind == PtxToken::Kind::kEnd || lexer.token().kind == PtxToken::Kind::kBad) {
      return ptx_error(lexer, "parentheses without an end");
    }
    if (lexer.token().is("(")) ++depth;
    if (lexer.token().is(")")) --depth;
    lexer.advance();
  } while (depth > 0);
  return {};
}

Result<PtxType> read_type(PtxLexer& lexer) {
  PtxType type;
  uint32_t align = 0;
  uint64_t length = 1;
  bool is_pointer = false;  // What follows .ptr is about what it points to.
  while (lexer.token().kind == PtxToken::Kind::kDirective) {
    const std::string_view word = lexer.token().text;
    if (word == ".align") {
      Result<uint32_t> read = read_align(lexer);
      if (!read) return read.error();
      if (!is_pointer) align = *read;
      continue;
    }
    if (word == ".attribute") {
      lexer.advance();
      if (!lexer.token().is("(")) return ptx_error(lexer, "an attribute without parentheses");
      PtxLexer inside = lexer;
      RGPU_RETURN_IF_ERROR(skip_parentheses(lexer));
      for (; inside.position() < lexer.position(); inside.advance()) {
        if (inside.token().is(".managed")) type.is_managed = true;
      }
      continue;
    }
    if (word == ".ptr") {
      is_pointer = true;
    } else if (const uint64_t elements = vector_length(word); elements != 0) {
      length = elements;
    } else if (const uint64_t size = type_size_bytes(word); size != 0) {
      type.element_bytes = size;
    } else if (!is_pointer || !is_space(word)) {
      return ptx_error(lexer, "no type of PTX");
    }
    lexer.advance();
  }
  if (type.element_bytes == 0) return ptx_error(lexer, "a declaration without a type");
  type.element_bytes *= length;
  type.align_bytes = align != 0 ? align : static_cast<uint32_t>(type.element_bytes);
  return type;
}

Result<PtxDeclaration> read_declarator(PtxLexer& lexer, const PtxType& type) {
  Result<std::string_view> name = read_name(lexer);
  if (!name) return name.error();
  PtxDeclaration declaration{*name, type.element_bytes, false};
  bool is_open = false;  // The first dimension is up to the initialiser.
  for (bool is_first = true; lexer.token().is("["); is_first = false) {
    lexer.advance();
    uint64_t elements = 1;
    if (lexer.token().is("]") && is_first) {
      is_open = true;
    } else {
      Result<uint64_t> read = read_number(lexer);
      if (!read) return read.error();
      elements = *read;
    }
    if (!lexer.token().is("]")) return ptx_error(lexer, "a dimension without its ']'");
    lexer.advance();
    if (declaration.size_bytes != 0 && elements > kVariableBytesMax / declaration.size_bytes) {
      return ptx_error(lexer, "a variable beyond 1 TiB");
    }
    declaration.size_bytes *= elements;
  }
  uint64_t entries = 0;
  if (lexer.token().is("=")) {
    lexer.advance();
    Result<uint64_t> skipped = skip_initialiser(lexer, is_open);
    if (!skipped) return skipped.error();
    entries = *skipped;
  }
  if (is_open) {
    if (declaration.size_bytes != 0 && entries > kVariableBytesMax / declaration.size_bytes) {
      return ptx_error(lexer, "a variable beyond 1 TiB");
    }
    declaration.size_bytes *= entries;
    declaration.is_unsized = entries == 0;
  }
  return declaration;
}

}  // namespace rgpu::cuda
