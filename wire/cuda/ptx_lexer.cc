#include "wire/cuda/ptx_lexer.h"

#include <algorithm>
#include <array>

namespace rgpu::cuda {
namespace {

constexpr bool is_blank(char c) noexcept {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';  // Texts of fatbinaries are padded.
}
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' ||
         c == '%';
}

// The bytes at which skip_block() must look.
constexpr auto kStops = [] {
  std::array<bool, 256> stops{};
  for (const char c : {'{', '}', '/', '"'}) stops[static_cast<unsigned char>(c)] = true;
  return stops;
}();

}  // namespace

bool PtxLexer::at_comment() const noexcept {
  return text_[at_] == '/' && at_ + 1 < text_.size() &&
         (text_[at_ + 1] == '/' || text_[at_ + 1] == '*');
}

bool PtxLexer::skip_comment() {
  const bool is_line = text_[at_ + 1] == '/';
  const size_t end = is_line ? text_.find('\n', at_) : text_.find("*/", at_ + 2);
  if (end == std::string_view::npos) {
    at_ = text_.size();
    return is_line;
  }
  at_ = end + (is_line ? 1 : 2);
  return true;
}

bool PtxLexer::skip_blanks() {
  while (at_ < text_.size()) {
    if (is_blank(text_[at_])) {
      ++at_;
    } else if (at_comment()) {
      if (!skip_comment()) return false;
    } else {
      break;
    }
  }
  return true;
}

bool PtxLexer::skip_string() {
  for (++at_; at_ < text_.size(); ++at_) {
    if (text_[at_] == '"') {
      ++at_;
      return true;
    }
    if (text_[at_] == '\\') ++at_;
  }
  at_ = text_.size();
  return false;
}

void PtxLexer::take_word(PtxToken::Kind kind) {
  const bool dots = kind != PtxToken::Kind::kDirective;
  ++at_;
  while (at_ < text_.size() && (is_word(text_[at_]) || (dots && text_[at_] == '.'))) ++at_;
  token_ = {kind, text_.substr(start_, at_ - start_)};
}

void PtxLexer::advance() {
  const bool closed = skip_blanks();
  start_ = at_;
  if (!closed) {
    token_ = {PtxToken::Kind::kBad, "a comment without an end"};
  } else if (at_ == text_.size()) {
    token_ = {};
  } else if (text_[at_] == '.') {
    take_word(PtxToken::Kind::kDirective);
  } else if (is_digit(text_[at_])) {
    take_word(PtxToken::Kind::kNumber);
  } else if (is_word(text_[at_])) {
    take_word(PtxToken::Kind::kWord);
  } else if (text_[at_] == '"') {
    token_ = skip_string()
                 ? PtxToken{PtxToken::Kind::kString, text_.substr(start_ + 1, at_ - start_ - 2)}
                 : PtxToken{PtxToken::Kind::kBad, "a string without an end"};
  } else {
    ++at_;
    token_ = {PtxToken::Kind::kPunctuation, text_.substr(start_, 1)};
  }
}

bool PtxLexer::skip_block() {
  size_t depth = 1;
  while (depth > 0) {
    while (at_ < text_.size() && !kStops[static_cast<unsigned char>(text_[at_])]) ++at_;
    if (at_ == text_.size()) return false;
    const char c = text_[at_];
    if (c == '"') {
      if (!skip_string()) return false;
      continue;
    }
    if (at_comment()) {
      if (!skip_comment()) return false;
      continue;
    }
    ++at_;
    if (c == '{') ++depth;
    if (c == '}') --depth;
  }
  advance();
  return true;
}

size_t PtxLexer::line() const {
  const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(start_, text_.size()));
  return 1 + static_cast<size_t>(std::count(text_.begin(), end, '\n'));
}

}  // namespace rgpu::cuda
