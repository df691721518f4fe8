// Lexer: PTX text, token by token.
//
// Threading: one thread.
// Lifetime:  tokens point into the text.
// Errors:    a byte that begins no token is a token of its own (kPunctuation): the parser refuses
// it.
#pragma once

#include <cstdint>
#include <string_view>

namespace rgpu::server::ptx {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kWord,         // Identifiers, opcodes with their suffixes, directives: `%tid.x`, `.reg`, `L1`
    kNumber,       // 12, 0x1F, 0f3F800000, 1.5e3
    kString,       // Without its quotes.
    kPunctuation,  // One byte.
  };
  Kind kind = Kind::kEnd;
  std::string_view text;
  uint32_t line = 1;

  [[nodiscard]] bool is(char punctuation) const {
    return kind == Kind::kPunctuation && text[0] == punctuation;
  }
  [[nodiscard]] bool is(std::string_view word) const { return kind == Kind::kWord && text == word; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  void skip_blanks();
  [[nodiscard]] char at(size_t position) const {
    return position < text_.size() ? text_[position] : '\0';
  }
  std::string_view word(size_t begin);
  std::string_view number(size_t begin);

  std::string_view text_;
  size_t position_ = 0;
  uint32_t line_ = 1;
};

}  // namespace rgpu::server::ptx
