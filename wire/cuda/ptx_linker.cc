#include "wire/cuda/ptx_linker.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "wire/cuda/image.h"
#include "wire/cuda/ptx_lexer.h"
#include "wire/cuda/ptx_statements.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kPiecesMax = size_t{1} << 16;
constexpr size_t kNestingMax = 1000;  // Of variables whose initialisers name others.

struct Place {
  uint32_t piece = 0;
  uint32_t symbol = 0;
};

struct Piece {
  std::string_view name;
  std::string_view text;
  PtxStatements statements;
  std::unordered_map<std::string_view, std::string> renamed;
  std::unordered_map<std::string_view, uint32_t> own;  // Definitions without linkage.
  std::vector<bool> is_dropped;                        // By symbol: another one is used.
  std::vector<bool> is_written;
};

std::string_view word_of(PtxLinkage linkage) {
  static constexpr std::array<std::string_view, 5> kWords{"", ".extern ", ".visible ", ".weak ",
                                                          ".common "};
  return kWords.at(static_cast<size_t>(linkage));
}

// What the driver itself supplies.
bool is_built_in(std::string_view name) {
  return name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail";
}

class Linker {
 public:
  Status add(const PtxPiece& piece);
  Result<std::string> link();

 private:
  Status define(Place place);
  Status name_private_symbols();
  Status check_declarations() const;
  void write_header();
  void write_function_heads();
  Status write_variable(Place place, size_t depth);
  Status write_what_it_names(Place place, size_t depth);
  void write_bodies();
  // The text of a piece with the piece's new names, without lines for debuggers.
  void append(const Piece& piece, size_t begin, size_t end);
  [[nodiscard]] const PtxStatement& at(Place place) const {
    return pieces_[place.piece].statements.symbols[place.symbol];
  }
  template <typename Visit>
  Status for_each_symbol(Visit visit);

  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, Place> public_;
  std::unordered_set<std::string> taken_;
  std::string out_;
};

Status Linker::add(const PtxPiece& piece) {
  Result<PtxStatements> statements = statements_of_ptx(piece.text);
  if (!statements) return statements.error().with_context(piece.name);
  const size_t count = statements->symbols.size();
  pieces_.push_back({piece.name,
                     piece.text,
                     std::move(*statements),
                     {},
                     {},
                     std::vector<bool>(count),
                     std::vector<bool>(count)});
  return {};
}

template <typename Visit>
Status Linker::for_each_symbol(Visit visit) {
  for (uint32_t piece = 0; piece < pieces_.size(); ++piece) {
    for (uint32_t symbol = 0; symbol < pieces_[piece].statements.symbols.size(); ++symbol) {
      RGPU_RETURN_IF_ERROR(visit(Place{piece, symbol}));
    }
  }
  return {};
}

// Notes a public definition, or drops one of two.
Status Linker::define(Place place) {
  const PtxStatement& symbol = at(place);
  const auto [found, is_new] = public_.try_emplace(symbol.name, place);
  if (is_new) return {};
  const auto is_soft = [](const PtxStatement& statement) {
    return statement.linkage == PtxLinkage::kWeak || statement.linkage == PtxLinkage::kCommon;
  };
  const Place before = found->second;
  if (is_soft(symbol)) {
    pieces_[place.piece].is_dropped[place.symbol] = true;
  } else if (is_soft(at(before))) {
    pieces_[before.piece].is_dropped[before.symbol] = true;
    found->second = place;
  } else {
    return {Code::kInvalidArgument, "'" + std::string(symbol.name) + "' is defined in " +
                                        std::string(pieces_[before.piece].name) + " and in " +
                                        std::string(pieces_[place.piece].name)};
  }
  return {};
}

Status Linker::name_private_symbols() {
  return for_each_symbol([this](Place place) -> Status {
    const PtxStatement& symbol = at(place);
    Piece& piece = pieces_[place.piece];
    if (symbol.linkage != PtxLinkage::kPrivate || !symbol.is_definition) return {};
    if (!piece.own.emplace(symbol.name, place.symbol).second) {
      return {Code::kInvalidArgument,
              std::string(piece.name) + " defines '" + std::string(symbol.name) + "' twice"};
    }
    if (taken_.emplace(symbol.name).second) return {};
    std::string name;
    for (size_t attempt = place.piece; name.empty() || !taken_.insert(name).second; ++attempt) {
      name = std::string(symbol.name) + "$" + std::to_string(attempt);
    }
    piece.renamed.emplace(symbol.name, std::move(name));
    return {};
  });
}

Status Linker::check_declarations() const {
  for (const Piece& piece : pieces_) {
    for (const PtxStatement& symbol : piece.statements.symbols) {
      if (symbol.is_definition || symbol.kind == PtxSymbolKind::kKernel) continue;
      const bool is_dynamic = symbol.is_shared && symbol.is_unsized;
      if (is_dynamic || is_built_in(symbol.name) || public_.contains(symbol.name) ||
          piece.own.contains(symbol.name)) {
        continue;
      }
      return {Code::kInvalidArgument,
              "undefined symbol '" + std::string(symbol.name) + "' in " + std::string(piece.name)};
    }
  }
  return {};
}

void Linker::append(const Piece& piece, size_t begin, size_t end) {
  size_t copied = begin;
  PtxLexer lexer(piece.text, begin);
  while (lexer.position() < end) {
    const PtxToken& token = lexer.token();
    if (token.kind == PtxToken::Kind::kEnd || token.kind == PtxToken::Kind::kBad) break;
    if (token.is(".loc")) {  // It ends with its line.
      out_.append(piece.text.substr(copied, lexer.position() - copied));
      copied = std::min(end, piece.text.find('\n', lexer.position()));
      lexer = PtxLexer(piece.text, copied);
      continue;
    }
    if (token.kind == PtxToken::Kind::kWord) {
      if (const auto renamed = piece.renamed.find(token.text); renamed != piece.renamed.end()) {
        out_.append(piece.text.substr(copied, lexer.position() - copied)).append(renamed->second);
        copied = lexer.position() + token.text.size();
      }
    }
    lexer.advance();
  }
  out_.append(piece.text.substr(copied, end - copied));
}

void Linker::write_header() {
  PtxHeader header;
  for (const Piece& piece : pieces_) {
    const PtxHeader& one = piece.statements.header;
    header.version = std::max(header.version, one.version);
    const bool is_special = one.arch.variant != ArchVariant::kPlain;
    if (one.arch.capability > header.arch.capability ||
        (one.arch.capability == header.arch.capability && is_special)) {
      header.arch = one.arch;
    }
  }
  out_ += ".version " + std::to_string(header.version / 10) + "." +
          std::to_string(header.version % 10) + "\n.target sm_" + header.arch.to_string() +
          "\n.address_size 64\n\n";
}

// Every function may be called, or its address taken, by what stands before its body.
void Linker::write_function_heads() {
  std::unordered_set<std::string_view> externs;
  for (const Piece& piece : pieces_) {
    for (size_t i = 0; i < piece.statements.symbols.size(); ++i) {
      const PtxStatement& symbol = piece.statements.symbols[i];
      if (symbol.kind != PtxSymbolKind::kFunction || piece.is_dropped[i]) continue;
      if (!symbol.is_definition) {
        const bool is_open = !public_.contains(symbol.name) && !piece.own.contains(symbol.name);
        if (!is_open || !externs.insert(symbol.name).second) continue;
      }
      out_ += word_of(symbol.linkage);
      append(piece, symbol.begin, symbol.head_end);
      out_ += ";\n";
    }
  }
}

Status Linker::write_what_it_names(Place place, size_t depth) {
  const Piece& piece = pieces_[place.piece];
  const PtxStatement& symbol = at(place);
  for (PtxLexer lexer(piece.text, symbol.declarator); lexer.position() < symbol.end;
       lexer.advance()) {
    if (lexer.token().kind != PtxToken::Kind::kWord || lexer.token().text == symbol.name) continue;
    Place named = place;
    if (const auto own = piece.own.find(lexer.token().text); own != piece.own.end()) {
      named.symbol = own->second;
    } else if (const auto shared = public_.find(lexer.token().text); shared != public_.end()) {
      named = shared->second;
    } else {
      continue;
    }
    if (at(named).kind == PtxSymbolKind::kVariable) {
      RGPU_RETURN_IF_ERROR(write_variable(named, depth + 1));
    }
  }
  return {};
}

Status Linker::write_variable(Place place, size_t depth) {
  Piece& piece = pieces_[place.piece];
  const PtxStatement& symbol = at(place);
  if (piece.is_written[place.symbol] || piece.is_dropped[place.symbol]) return {};
  if (depth > kNestingMax) {
    return {Code::kInvalidArgument, "the initialiser of '" + std::string(symbol.name) +
                                        "' reaches through more than 1000 variables"};
  }
  piece.is_written[place.symbol] = true;
  RGPU_RETURN_IF_ERROR(write_what_it_names(place, depth));
  out_ += word_of(symbol.linkage);
  append(piece, symbol.begin, symbol.type_end);
  append(piece, symbol.declarator, symbol.end);
  out_ += ";\n";
  return {};
}

void Linker::write_bodies() {
  for (const Piece& piece : pieces_) {
    for (size_t i = 0; i < piece.statements.symbols.size(); ++i) {
      const PtxStatement& symbol = piece.statements.symbols[i];
      if (symbol.kind == PtxSymbolKind::kVariable || !symbol.is_definition || piece.is_dropped[i]) {
        continue;
      }
      out_ += word_of(symbol.linkage);
      append(piece, symbol.begin, symbol.end);
      out_ += '\n';
    }
  }
}

Result<std::string> Linker::link() {
  RGPU_RETURN_IF_ERROR(for_each_symbol([this](Place place) -> Status {
    if (at(place).linkage != PtxLinkage::kPrivate) taken_.emplace(at(place).name);
    const bool is_public = at(place).linkage != PtxLinkage::kPrivate && at(place).is_definition;
    return is_public ? define(place) : Status();
  }));
  RGPU_RETURN_IF_ERROR(name_private_symbols());
  RGPU_RETURN_IF_ERROR(check_declarations());
  if (pieces_.size() == 1) return std::string(pieces_.front().text);
  write_header();
  write_function_heads();
  // Memory whose size the launch decides: one declaration is enough for all.
  std::unordered_set<std::string_view> dynamic;
  RGPU_RETURN_IF_ERROR(for_each_symbol([&](Place place) -> Status {
    const PtxStatement& symbol = at(place);
    if (symbol.kind != PtxSymbolKind::kVariable) return {};
    const bool is_first_of_all = symbol.linkage == PtxLinkage::kExtern && symbol.is_unsized &&
                                 symbol.is_shared && dynamic.insert(symbol.name).second;
    return symbol.is_definition || is_first_of_all ? write_variable(place, 0) : Status();
  }));
  write_bodies();
  return std::move(out_);
}

}  // namespace

Result<std::string> link_ptx(std::span<const PtxPiece> pieces) {
  if (pieces.empty()) return Status(Code::kInvalidArgument, "nothing to link");
  if (pieces.size() > kPiecesMax) {
    return Status(Code::kInvalidArgument, "more than 65536 pieces to link");
  }
  Linker linker;
  size_t size_bytes = 0;
  for (const PtxPiece& piece : pieces) {
    size_bytes += piece.text.size();
    if (size_bytes > kImageBytesMax) {
      return Status(Code::kInvalidArgument, "more than 1 GiB of PTX to link");
    }
    RGPU_RETURN_IF_ERROR(linker.add(piece));
  }
  return linker.link();
}

}  // namespace rgpu::cuda
