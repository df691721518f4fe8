#include "wire/cuda/ptx_shared.h"

#include <algorithm>

namespace rgpu::cuda {
namespace {

constexpr uint64_t kVisitsMax = uint64_t{1} << 26;  // Kernels times what they reach.
constexpr std::string_view kShared = ".shared";

// Whether `.shared` begins a word somewhere, as it does not in `ld.shared.u32`.
bool may_declare(std::string_view body) {
  for (size_t at = body.find(kShared); at != std::string_view::npos;
       at = body.find(kShared, at + kShared.size())) {
    const char before = at == 0 ? ' ' : body[at - 1];
    const bool is_word = (before >= 'a' && before <= 'z') || (before >= '0' && before <= '9') ||
                         (before >= 'A' && before <= 'Z') || before == '_';
    if (!is_word) return true;
  }
  return false;
}

}  // namespace

void PtxShared::add_variable(const PtxDeclaration& variable, uint32_t align_bytes) {
  by_name_.emplace(variable.name, static_cast<uint32_t>(nodes_.size()));
  Node& node = nodes_.emplace_back();
  node.own.emplace_back(variable.size_bytes, align_bytes);
  is_shared_outside_kernels_ = true;
}

void PtxShared::add_body(std::string_view name, bool is_kernel, size_t start, size_t end) {
  by_name_.emplace(name, static_cast<uint32_t>(nodes_.size()));
  Node& node = nodes_.emplace_back();
  node.is_kernel = is_kernel;
  node.start = start;
  node.end = end;
}

Status PtxShared::read_own(Node& node) const {
  if (!may_declare(text_.substr(node.start, node.end - node.start))) return {};
  PtxLexer lexer(text_.substr(0, node.end), node.start);
  bool begins = false;
  while (lexer.token().kind != PtxToken::Kind::kEnd) {
    if (!begins || lexer.token().kind != PtxToken::Kind::kDirective || !lexer.token().is(kShared)) {
      begins = lexer.token().is(";") || lexer.token().is("{") || lexer.token().is("}");
      lexer.advance();
      continue;
    }
    lexer.advance();
    Result<PtxType> type = read_type(lexer);
    if (!type) return type.error();
    while (true) {
      Result<PtxDeclaration> variable = read_declarator(lexer, *type);
      if (!variable) return variable.error();
      if (!variable->is_unsized) node.own.emplace_back(variable->size_bytes, type->align_bytes);
      if (!lexer.token().is(",")) break;
      lexer.advance();
    }
  }
  return {};
}

void PtxShared::read_names(Node& node) const {
  PtxLexer lexer(text_.substr(0, node.end), node.start);
  for (; lexer.token().kind != PtxToken::Kind::kEnd; lexer.advance()) {
    if (lexer.token().kind != PtxToken::Kind::kWord) continue;
    const auto found = by_name_.find(lexer.token().text);
    if (found != by_name_.end()) node.names.push_back(found->second);
  }
  std::ranges::sort(node.names);
  node.names.erase(std::unique(node.names.begin(), node.names.end()), node.names.end());
}

Result<uint32_t> PtxShared::size_from(uint32_t root, uint32_t visit) {
  uint64_t size = 0;
  std::vector<uint32_t> open{root};
  nodes_[root].visited = visit;
  while (!open.empty()) {
    const Node& node = nodes_[open.back()];
    open.pop_back();
    for (const auto& [own_size, align] : node.own) {
      size = (size + align - 1) / align * align + own_size;
      if (size > UINT32_MAX) {
        return Status(Code::kInvalidArgument, "PTX: a kernel with 4 GiB of shared memory");
      }
    }
    visits_ += node.names.size() + 1;
    if (visits_ > kVisitsMax) {
      return Status(Code::kExhausted, "PTX: its kernels reach too many functions to follow");
    }
    for (const uint32_t next : node.names) {
      if (nodes_[next].visited == visit) continue;
      nodes_[next].visited = visit;
      open.push_back(next);
    }
  }
  return static_cast<uint32_t>(size);
}

Status PtxShared::finish(std::vector<KernelLayout>& kernels) {
  for (Node& node : nodes_) {
    if (node.end == 0) continue;
    RGPU_RETURN_IF_ERROR(read_own(node));
    if (!node.is_kernel && !node.own.empty()) is_shared_outside_kernels_ = true;
  }
  if (is_shared_outside_kernels_) {
    for (Node& node : nodes_) {
      if (node.end != 0) read_names(node);
    }
  }
  uint32_t kernel = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_kernel) continue;
    Result<uint32_t> size = size_from(i, kernel + 1);
    if (!size) return size.error();
    kernels[kernel++].static_shared_size_bytes = *size;
  }
  return {};
}

}  // namespace rgpu::cuda
