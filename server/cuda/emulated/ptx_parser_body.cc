// The statements of a function and their operands.
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "server/cuda/emulated/ptx_parser.h"

namespace rgpu::server::ptx {
namespace {

constexpr int kDepthMax = 8;
constexpr size_t kOperandsMax = 1 << 26;

}  // namespace

void Parser::body(FunctionSyntax& function) {
  expect('{');
  int depth = 1;
  while (depth > 0 && !failed()) {
    if (token_.kind == Token::Kind::kEnd) return fail("a function does not end");
    Statement scope;
    scope.line = token_.line;
    if (accept('{')) {
      if (++depth > 64) return fail("blocks are nested too deeply");
      scope.kind = Statement::Kind::kOpen;
      function.body.push_back(std::move(scope));
    } else if (accept('}')) {
      scope.kind = Statement::Kind::kClose;
      if (--depth > 0) function.body.push_back(std::move(scope));
    } else if (accept(';')) {
      continue;
    } else if (token_.is('@') || !token_.text.starts_with('.')) {
      instruction(function);
    } else if (!body_directive(function)) {
      return fail("directive '" + std::string(token_.text.substr(0, 60)) + "' is not known");
    }
  }
}

bool Parser::body_directive(FunctionSyntax& function) {
  const std::string_view word = token_.text;
  Storage storage{};
  if (storage_of(word, storage)) {
    advance();
    for (Declaration& declaration : declarations(storage, {})) {
      Statement statement;
      statement.kind = Statement::Kind::kDeclaration;
      statement.line = declaration.line;
      statement.index = static_cast<uint32_t>(function.declarations.size());
      function.declarations.push_back(std::move(declaration));
      function.body.push_back(std::move(statement));
    }
    return true;
  }
  if (word == ".loc") {
    // .loc file line column[, function_name label, inlined_at …]: ends with its line.
    const uint32_t line = token_.line;
    while (token_.kind != Token::Kind::kEnd && token_.line == line) advance();
    return true;
  }
  if (word == ".pragma" || word == ".noreturn") {
    skip_to(';');
    return true;
  }
  return false;
}

// What may stand behind `name:`.
void Parser::labelled(FunctionSyntax& function, std::string_view label) {
  Statement statement;
  statement.name = label;
  statement.line = token_.line;
  statement.kind = Statement::Kind::kLabel;
  if (token_.is(".branchtargets") || token_.is(".calltargets")) {
    const bool branch = token_.is(".branchtargets");
    advance();
    statement.operands = operand_list(';', 0);
    if (!branch) return;
    statement.kind = Statement::Kind::kTargets;
  } else if (token_.is(".callprototype")) {
    advance();
    FunctionSyntax prototype;
    prototype.name = label;
    if (token_.is('(')) prototype.results = parameters();
    expect_word("_");
    if (token_.is('(')) prototype.parameters = parameters();
    function_directives(prototype);
    expect(';');
    statement.kind = Statement::Kind::kPrototype;
    statement.index = static_cast<uint32_t>(function.prototypes.size());
    function.prototypes.push_back(std::move(prototype));
  }
  function.body.push_back(std::move(statement));
}

void Parser::instruction(FunctionSyntax& function) {
  Statement statement;
  statement.line = token_.line;
  if (accept('@')) {
    statement.guard_negated = accept('!');
    statement.guard = expect_word("a predicate");
  }
  statement.name = expect_word("an instruction");
  if (failed()) return;
  if (statement.guard.empty() && accept(':')) return labelled(function, statement.name);
  statement.operands = operand_list(';', 0);
  function.body.push_back(std::move(statement));
}

std::vector<SyntaxOperand> Parser::operand_list(char end, int depth) {
  std::vector<SyntaxOperand> list;
  while (!failed() && !token_.is(end)) {
    list.push_back(operand(depth));
    if (!accept(',')) break;
  }
  expect(end);
  return list;
}

SyntaxOperand Parser::operand(int depth) {
  SyntaxOperand result;
  if (depth > kDepthMax || ++operand_count_ > kOperandsMax) {
    fail("operands are nested too deeply or too many");
    return result;
  }
  if (accept('[')) return address(depth);
  if (accept('{')) {
    result.kind = SyntaxOperand::Kind::kVector;
    result.parts = operand_list('}', depth + 1);
    return result;
  }
  if (accept('(')) {
    result.kind = SyntaxOperand::Kind::kList;
    result.parts = operand_list(')', depth + 1);
    return result;
  }
  if (accept('!')) {
    result = operand(depth + 1);
    result.negated = !result.negated;
    return result;
  }
  if (accept('-')) {
    if (token_.kind == Token::Kind::kNumber) return number(true);
    fail("a number expected behind '-'");
    return result;
  }
  if (accept('~')) {
    result = operand(depth + 1);
    result.integer = ~result.integer;
    return result;
  }
  if (token_.kind != Token::Kind::kNumber) return name_operand();
  result = number(false);
  if (!accept('(')) return result;
  // In initializers: some bytes of an address, 0xFF00(symbol).
  const uint64_t mask = result.integer;
  result = name_operand();
  result.integer = mask;
  expect(')');
  return result;
}

SyntaxOperand Parser::name_operand() {
  SyntaxOperand result;
  const std::string_view name = expect_word("an operand");
  if (failed()) return result;
  if (name == "generic" && accept('(')) {
    result = name_operand();
    result.generic = true;
    expect(')');
    result.offset += offset();
    return result;
  }
  result.name = name;
  result.kind = name == "_" ? SyntaxOperand::Kind::kSink : SyntaxOperand::Kind::kName;
  if (accept('|')) {
    SyntaxOperand pair;
    pair.kind = SyntaxOperand::Kind::kPair;
    pair.parts.push_back(std::move(result));
    pair.parts.push_back(name_operand());
    return pair;
  }
  result.offset = offset();
  return result;
}

// Any number of `+ n` and `- n`.
int64_t Parser::offset() {
  uint64_t sum = 0;
  while (!failed() && (token_.is('+') || token_.is('-'))) {
    const bool minus = token_.is('-');
    advance();
    const bool negative = accept('-') != minus;
    const uint64_t value = expect_integer("an offset");
    sum = negative ? sum - value : sum + value;
  }
  return static_cast<int64_t>(sum);
}

SyntaxOperand Parser::address(int depth) {
  SyntaxOperand result;
  if (token_.kind == Token::Kind::kNumber || token_.is('-')) {
    const bool negative = accept('-');
    result = number(negative);
  } else {
    result = name_operand();
  }
  result.kind = SyntaxOperand::Kind::kAddress;
  // A second part (texture coordinates, tensor coordinates) is kept for the error that follows.
  while (!failed() && accept(',')) result.parts.push_back(operand(depth + 1));
  expect(']');
  return result;
}

SyntaxOperand Parser::number(bool negative) {
  SyntaxOperand result;
  const std::string_view text = token_.text;
  const char* begin = text.data();
  const char* end = begin + text.size();
  result.kind = SyntaxOperand::Kind::kInteger;
  const char mark = text.size() > 1 && text[0] == '0' ? text[1] : '\0';
  const auto parse = [&](int base, size_t skip) {
    const auto [stop, error] = std::from_chars(begin + skip, end, result.integer, base);
    const bool suffix = stop + 1 == end && (*stop == 'U' || *stop == 'u');
    return error == std::errc() && (stop == end || suffix);
  };
  bool valid = false;
  if (mark == 'f' || mark == 'F' || mark == 'd' || mark == 'D') {
    const bool single = mark == 'f' || mark == 'F';
    valid = text.size() == (single ? 10 : 18) && parse(16, 2);
    if (single) {
      const double value = std::bit_cast<float>(static_cast<uint32_t>(result.integer));
      // A double keeps a signalling NaN's payload only if it is widened by hand.
      const uint64_t bits = result.integer;
      const bool is_nan = (bits & 0x7f80'0000) == 0x7f80'0000 && (bits & 0x7f'ffff) != 0;
      result.integer =
          is_nan ? (bits & 0x8000'0000) << 32 | uint64_t{0x7ff} << 52 | (bits & 0x7f'ffff) << 29
                 : std::bit_cast<uint64_t>(value);
    }
    result.kind = SyntaxOperand::Kind::kFloat;
  } else if (mark == 'x' || mark == 'X') {
    valid = parse(16, 2);
  } else if (mark == 'b' || mark == 'B') {
    valid = parse(2, 2);
  } else if (text.find_first_of(".eE") != std::string_view::npos) {
    double value = 0;
    valid = std::from_chars(begin, end, value).ptr == end;
    result.integer = std::bit_cast<uint64_t>(value);
    result.kind = SyntaxOperand::Kind::kFloat;
  } else {
    valid = mark >= '0' && mark <= '7' ? parse(8, 1) : parse(10, 0);
  }
  if (!valid) fail("'" + std::string(text.substr(0, 40)) + "' is not a number");
  if (negative) {
    result.integer = result.kind == SyntaxOperand::Kind::kFloat
                         ? result.integer ^ (uint64_t{1} << 63)
                         : ~result.integer + 1;
  }
  advance();
  return result;
}

}  // namespace rgpu::server::ptx
