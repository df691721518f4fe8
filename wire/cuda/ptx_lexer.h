// PtxLexer: the words of a PTX text. Enough for declarations; bodies are skipped by skip_block().
//
// Threading: one thread. Lifetime: tokens refer to the text. Errors: a bad byte is a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rgpu::cuda {

struct PtxToken {
  enum class Kind : uint8_t {
    kEnd,
    kDirective,    // .visible; `.param.u32` is two of them.
    kWord,         // A name or an instruction, dots included.
    kNumber,       // 68, 9.0, 0x1F, 0f3F800000
    kString,       // Without its quotes.
    kPunctuation,  // One byte.
    kBad,          // A string or a comment without an end.
  };
  Kind kind = Kind::kEnd;
  std::string_view text;

  [[nodiscard]] bool is(std::string_view what) const noexcept {
    return kind != Kind::kString && text == what;
  }
};

class PtxLexer {
 public:
  explicit PtxLexer(std::string_view text, size_t from = 0) : text_(text), at_(from) { advance(); }

  [[nodiscard]] const PtxToken& token() const noexcept { return token_; }
  void advance();
  // Where token() begins.
  [[nodiscard]] size_t position() const noexcept { return start_; }
  // At a '{': to behind its '}'. False where the text ends first.
  [[nodiscard]] bool skip_block();
  // For messages; reads the text up to here.
  [[nodiscard]] size_t line() const;

 private:
  [[nodiscard]] bool skip_blanks();   // And comments; false in one without an end.
  [[nodiscard]] bool skip_comment();  // At a '/' that begins one.
  [[nodiscard]] bool at_comment() const noexcept;
  [[nodiscard]] bool skip_string();  // At a '"'.
  void take_word(PtxToken::Kind kind);

  std::string_view text_;
  size_t at_ = 0;
  size_t start_ = 0;
  PtxToken token_;
};

}  // namespace rgpu::cuda
