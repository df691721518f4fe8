#include "server/cuda/emulated/ptx_lexer.h"

namespace rgpu::server::ptx {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool begins_word(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%' || c == '.'; }
bool continues_word(char c) { return begins_word(c) || is_digit(c); }

}  // namespace

void Lexer::skip_blanks() {
  for (;;) {
    const char c = at(position_);
    if (c == '\n') ++line_;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n' ||
        (c == '\0' && position_ < text_.size())) {
      ++position_;
    } else if (c == '/' && at(position_ + 1) == '/') {
      while (position_ < text_.size() && at(position_) != '\n') ++position_;
    } else if (c == '/' && at(position_ + 1) == '*') {
      position_ += 2;
      while (position_ < text_.size() && !(at(position_) == '*' && at(position_ + 1) == '/')) {
        if (at(position_) == '\n') ++line_;
        ++position_;
      }
      position_ = position_ + 2 < text_.size() ? position_ + 2 : text_.size();
    } else {
      return;
    }
  }
}

std::string_view Lexer::word(size_t begin) {
  const bool is_directive = at(begin) == '.';
  if (is_directive) ++position_;
  while (continues_word(at(position_)) || (at(position_) == ':' && at(position_ + 1) == ':')) {
    if (is_directive && at(position_) == '.') break;  // `.reg.b32` is two.
    position_ += at(position_) == ':' ? 2 : 1;        // `.shared::cta`
  }
  return text_.substr(begin, position_ - begin);
}

std::string_view Lexer::number(size_t begin) {
  const bool is_hexadecimal = at(begin) == '0' && is_letter(at(begin + 1));
  for (;;) {
    const char c = at(position_);
    const char before = at(position_ - 1);
    const bool exponent = !is_hexadecimal && (c == '+' || c == '-') && position_ > begin &&
                          (before == 'e' || before == 'E');
    if (!is_digit(c) && !is_letter(c) && c != '.' && !exponent) break;
    ++position_;
  }
  return text_.substr(begin, position_ - begin);
}

Token Lexer::next() {
  skip_blanks();
  if (position_ >= text_.size()) return {Token::Kind::kEnd, {}, line_};
  const size_t begin = position_;
  const uint32_t line = line_;
  const char c = text_[begin];
  if (is_digit(c)) return {Token::Kind::kNumber, number(begin), line};
  if (begins_word(c)) return {Token::Kind::kWord, word(begin), line};
  if (c == '"') {
    ++position_;
    while (position_ < text_.size() && at(position_) != '"') {
      if (at(position_) == '\n') ++line_;
      ++position_;
    }
    const std::string_view inside = text_.substr(begin + 1, position_ - begin - 1);
    if (position_ < text_.size()) ++position_;
    return {Token::Kind::kString, inside, line};
  }
  ++position_;
  return {Token::Kind::kPunctuation, text_.substr(begin, 1), line};
}

}  // namespace rgpu::server::ptx
