// PtxShared: how much static shared memory each kernel of a PTX text takes: what its body declares,
// and what it and the functions that it names use of the module's.
//
// Threading: one thread. Lifetime: refers to the text. Cost: texts without such functions and
// module-wide variables are read for the word `.shared` and no more.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wire/cuda/kernel_parameters.h"
#include "wire/cuda/ptx_declaration.h"
#include "wire/status.h"

namespace rgpu::cuda {

class PtxShared {
 public:
  explicit PtxShared(std::string_view text) : text_(text) {}

  // At module scope.
  void add_variable(const PtxDeclaration& variable, uint32_t align_bytes);
  // A body from its '{' to `end`. Kernels come in the order of finish()'s.
  void add_body(std::string_view name, bool is_kernel, size_t start, size_t end);
  [[nodiscard]] size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] Status finish(std::vector<KernelLayout>& kernels);

 private:
  // A function, a kernel or a module's variable: what it takes itself, and what it names.
  struct Node {
    bool is_kernel = false;
    size_t start = 0;
    size_t end = 0;
    std::vector<std::pair<uint64_t, uint32_t>> own;  // Size and alignment, bytes.
    std::vector<uint32_t> names;
    uint32_t visited = 0;
  };

  [[nodiscard]] Status read_own(Node& node) const;
  void read_names(Node& node) const;
  [[nodiscard]] Result<uint32_t> size_from(uint32_t root, uint32_t visit);

  std::string_view text_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string_view, uint32_t> by_name_;
  bool is_shared_outside_kernels_ = false;
  uint64_t visits_ = 0;
};

}  // namespace rgpu::cuda
