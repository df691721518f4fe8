#include "server/cuda/emulated/ptx_parser.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_map>

namespace rgpu::server::ptx {
namespace {

constexpr int kDepthMax = 8;
constexpr uint64_t kVariableSizeMax = uint64_t{1} << 32;
constexpr uint32_t kRegisterCountMax = 1 << 20;

}  // namespace

Type type_of(std::string_view suffix) {
  static const std::unordered_map<std::string_view, Type> kTypes = {
      {"pred", Type::kPred},     {"b8", Type::kB8},        {"u8", Type::kU8},
      {"s8", Type::kS8},         {"b16", Type::kB16},      {"u16", Type::kU16},
      {"s16", Type::kS16},       {"f16", Type::kF16},      {"bf16", Type::kBF16},
      {"b32", Type::kB32},       {"u32", Type::kU32},      {"s32", Type::kS32},
      {"f32", Type::kF32},       {"f16x2", Type::kF16x2},  {"bf16x2", Type::kBF16x2},
      {"b64", Type::kB64},       {"u64", Type::kU64},      {"s64", Type::kS64},
      {"f64", Type::kF64},       {"f32x2", Type::kF32x2},  {"b128", Type::kB128},
      {"u16x2", Type::kU16x2},   {"s16x2", Type::kS16x2},  {"tf32", Type::kTF32},
      {"e4m3x2", Type::kE4M3x2}, {"e5m2x2", Type::kE5M2x2}};
  const auto found = kTypes.find(suffix);
  return found == kTypes.end() ? Type::kNone : found->second;
}

std::vector<std::string_view> split_opcode(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return parts;
}

Result<ModuleSyntax> parse_module(std::string_view text) { return Parser(text).module(); }

void Parser::advance() {
  if (failed()) return;
  token_ = lexer_.next();
}

void Parser::fail(std::string message) {
  if (failed()) return;
  error_ = Status(Code::kInvalidArgument,
                  "PTX line " + std::to_string(token_.line) + ": " + std::move(message));
  token_ = Token{Token::Kind::kEnd, {}, token_.line};
}

bool Parser::accept(char punctuation) {
  if (!token_.is(punctuation)) return false;
  advance();
  return true;
}

void Parser::expect(char punctuation) {
  if (accept(punctuation)) return;
  fail(std::string("'") + punctuation + "' expected, not '" +
       std::string(token_.text.substr(0, 40)) + "'");
}

std::string_view Parser::expect_word(const char* what) {
  const std::string_view text = token_.text;
  if (token_.kind != Token::Kind::kWord) {
    fail(std::string(what) + " expected, not '" + std::string(text.substr(0, 40)) + "'");
    return {};
  }
  advance();
  return text;
}

uint64_t Parser::expect_integer(const char* what) {
  if (token_.kind != Token::Kind::kNumber) {
    fail(std::string(what) + " expected");
    return 0;
  }
  const SyntaxOperand value = number(false);
  if (value.kind != SyntaxOperand::Kind::kInteger) fail(std::string(what) + " expected");
  return value.integer;
}

void Parser::skip_to(char punctuation) {
  while (token_.kind != Token::Kind::kEnd && !token_.is(punctuation)) advance();
  expect(punctuation);
}

void Parser::skip_braces() {
  expect('{');
  for (int depth = 1; depth > 0 && token_.kind != Token::Kind::kEnd; advance()) {
    if (token_.is('{')) ++depth;
    if (token_.is('}')) --depth;
  }
}

Result<ModuleSyntax> Parser::module() {
  ModuleSyntax module;
  while (token_.kind != Token::Kind::kEnd) directive(module);
  if (failed()) return error_;
  if (module.version == 0) return Status(Code::kInvalidArgument, "PTX without .version");
  return module;
}

void Parser::directive(ModuleSyntax& module) {
  Linkage linkage;
  for (;;) {
    const std::string_view word = expect_word("a directive");
    if (failed()) return;
    if (word == ".visible" || word == ".common") {
      linkage.is_visible = true;
    } else if (word == ".weak") {
      linkage.is_weak = true;
    } else if (word == ".extern") {
      linkage.is_extern = true;
    } else if (word == ".version") {
      return version(module);
    } else if (word == ".target") {
      return target(module);
    } else if (word == ".address_size") {
      if (expect_integer("an address size") != 64) fail(".address_size other than 64");
      return;
    } else if (word == ".entry" || word == ".func") {
      return function(module, linkage, word == ".entry");
    } else if (word == ".file" || word == ".loc") {
      const uint32_t line = token_.line;
      while (token_.kind != Token::Kind::kEnd && token_.line == line) advance();
      return;
    } else if (word == ".section") {
      expect_word("a section's name");
      return skip_braces();
    } else if (word == ".pragma") {
      return skip_to(';');
    } else if (word == ".alias") {
      const std::string_view name = expect_word("a name");
      expect(',');
      module.aliases.emplace_back(name, expect_word("a name"));
      return expect(';');
    } else {
      Storage storage{};
      if (!storage_of(word, storage)) {
        return fail("directive '" + std::string(word.substr(0, 60)) + "' is not known");
      }
      for (Declaration& each : declarations(storage, linkage)) {
        module.variables.push_back(std::move(each));
      }
      return;
    }
  }
}

void Parser::version(ModuleSyntax& module) {
  uint32_t major = 0;
  uint32_t minor = 0;
  const std::string_view text = token_.text;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (token_.kind != Token::Kind::kNumber || error != std::errc() || dot == end || *dot != '.' ||
      std::from_chars(dot + 1, end, minor).ptr != end || major > 1000 || minor > 9) {
    return fail(".version expects a number like 8.7");
  }
  module.version = major * 10 + minor;
  advance();
}

void Parser::target(ModuleSyntax& module) {
  do {
    const std::string_view word = expect_word("a target");
    if (!word.starts_with("sm_")) continue;  // texmode_…, debug, map_f64_to_f32
    uint32_t number = 0;
    const char* const end = word.data() + word.size();
    if (std::from_chars(word.data() + 3, end, number).ec != std::errc() || number > 10000) {
      return fail("target '" + std::string(word.substr(0, 40)) + "' is not known");
    }
    module.target = number;
  } while (accept(','));
}

void Parser::function(ModuleSyntax& module, const Linkage& linkage, bool is_entry) {
  FunctionSyntax function;
  function.is_entry = is_entry;
  function.is_extern = linkage.is_extern;
  function.is_visible = linkage.is_visible;
  function.is_weak = linkage.is_weak;
  function.line = token_.line;
  while (token_.is(".attribute")) {
    advance();
    skip_to(')');
  }
  if (token_.is('(')) function.results = parameters();
  function.name = expect_word("a function's name");
  if (token_.is('(')) function.parameters = parameters();
  function_directives(function);
  if (!accept(';')) {
    function.has_body = true;
    body(function);
  }
  if (!failed()) module.functions.push_back(std::move(function));
}

void Parser::function_directives(FunctionSyntax& function) {
  while (token_.kind == Token::Kind::kWord && token_.text.starts_with('.')) {
    const std::string_view word = token_.text;
    advance();
    std::array<uint32_t, 3>* sizes = nullptr;
    if (word == ".maxntid") sizes = &function.threads_max;
    if (word == ".reqntid") sizes = &function.threads_required;
    if (word == ".pragma") {
      skip_to(';');
    } else if (sizes != nullptr) {
      *sizes = {1, 1, 1};
      for (size_t i = 0; i < 3; ++i) {
        const uint64_t size = expect_integer("a size");
        if (size == 0 || size > 1024) return fail(std::string(word) + " is out of range");
        (*sizes)[i] = static_cast<uint32_t>(size);
        if (!accept(',')) break;
      }
    } else {
      // .minnctapersm 2, .maxnreg 32, .noreturn, .unique, .explicitcluster …
      while (token_.kind == Token::Kind::kNumber || token_.is(',')) advance();
    }
  }
}

std::vector<Declaration> Parser::parameters() {
  std::vector<Declaration> list;
  expect('(');
  while (!failed() && !token_.is(')')) {
    Storage storage{};
    if (!storage_of(expect_word("a parameter"), storage)) {
      fail(".param or .reg expected");
      break;
    }
    Declaration declaration = declaration_head(storage, {});
    declaration_name(declaration);
    list.push_back(std::move(declaration));
    if (!accept(',')) break;
  }
  expect(')');
  return list;
}

bool Parser::storage_of(std::string_view directive, Storage& storage) const {
  static const std::unordered_map<std::string_view, Storage> kStorages = {
      {".reg", Storage::kRegister},       {".global", Storage::kGlobal},
      {".shared", Storage::kShared},      {".local", Storage::kLocal},
      {".const", Storage::kConst},        {".param", Storage::kParameter},
      {".shared::cta", Storage::kShared}, {".param::func", Storage::kParameter}};
  const auto found = kStorages.find(directive);
  if (found != kStorages.end()) storage = found->second;
  return found != kStorages.end();
}

std::vector<Declaration> Parser::declarations(Storage storage, const Linkage& linkage) {
  std::vector<Declaration> list;
  const Declaration head = declaration_head(storage, linkage);
  do {
    Declaration declaration = head;
    declaration_name(declaration);
    if (failed()) return list;
    if (accept('=')) initializer(declaration.initializer, 0);
    list.push_back(std::move(declaration));
  } while (accept(','));
  expect(';');
  return list;
}

Declaration Parser::declaration_head(Storage storage, const Linkage& linkage) {
  Declaration declaration;
  declaration.storage = storage;
  declaration.is_extern = linkage.is_extern;
  declaration.is_weak = linkage.is_weak;
  declaration.is_visible = linkage.is_visible;
  declaration.line = token_.line;
  while (token_.kind == Token::Kind::kWord && token_.text.starts_with('.')) {
    const std::string_view word = token_.text;
    advance();
    const Type type = type_of(word.substr(1));
    if (word == ".align") {
      const uint64_t alignment = expect_integer("an alignment");
      if (alignment == 0 || alignment > 4096 || (alignment & (alignment - 1)) != 0) {
        fail("alignment " + std::to_string(alignment) + " is out of range");
      }
      declaration.alignment = static_cast<uint32_t>(alignment);
    } else if (word == ".attribute") {
      expect('(');
      while (!failed() && !token_.is(')')) {
        if (token_.is(".managed")) declaration.is_managed = true;
        advance();
        if (token_.kind == Token::Kind::kEnd) fail("')' expected");
      }
      expect(')');
    } else if (word == ".v2" || word == ".v4") {
      declaration.vector = word == ".v2" ? 2 : 4;
    } else if (word == ".ptr") {
      // Of a parameter: its space and alignment follow and are hints only.
      const uint32_t alignment = declaration.alignment;
      while (token_.is(".global") || token_.is(".const") || token_.is(".shared") ||
             token_.is(".local") || token_.is(".align")) {
        const bool aligned = token_.is(".align");
        advance();
        if (aligned) expect_integer("an alignment");
      }
      declaration.alignment = alignment;
    } else if (type != Type::kNone) {
      declaration.type = type;
    } else if (word == ".texref" || word == ".samplerref" || word == ".surfref") {
      declaration.type = Type::kB64;
    } else {
      fail("'" + std::string(word.substr(0, 40)) + "' in a declaration is not known");
    }
  }
  if (declaration.type == Type::kNone) fail("a declaration without a type");
  return declaration;
}

void Parser::declaration_name(Declaration& declaration) {
  declaration.line = token_.line;
  declaration.name = expect_word("a name");
  if (accept('<')) {
    const uint64_t count = expect_integer("a count");
    if (count > kRegisterCountMax) return fail("too many registers");
    declaration.count = static_cast<uint32_t>(count);
    declaration.numbered = true;
    expect('>');
  }
  dimensions(declaration);
}

void Parser::dimensions(Declaration& declaration) {
  while (!failed() && accept('[')) {
    declaration.is_array = true;
    if (accept(']')) {
      declaration.open_array = true;
      declaration.element_count = 0;
      continue;
    }
    const uint64_t count = expect_integer("an array's size");
    expect(']');
    if (count > kVariableSizeMax || declaration.element_count * count > kVariableSizeMax) {
      return fail("an array is too large");
    }
    declaration.element_count *= count;
  }
  if (declaration.size_bytes() > kVariableSizeMax) fail("a variable is too large");
}

void Parser::initializer(std::vector<SyntaxOperand>& values, int depth) {
  if (depth > kDepthMax) return fail("an initializer is nested too deeply");
  if (!accept('{')) {
    values.push_back(operand(depth));
    return;
  }
  while (!failed() && !token_.is('}')) {
    initializer(values, depth + 1);
    if (!accept(',')) break;
  }
  expect('}');
}

}  // namespace rgpu::server::ptx
