// Sparse tensors of device rgpu: PyTorch's own, over components that are dense tensors of the
// device. The server knows only the components; a record names a sparse argument by them.
//
// Threading: any thread. Errors: as PyTorch's constructors raise.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "wire/op_template.h"

namespace rgpu::backend {

[[nodiscard]] inline bool is_sparse(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() != at::kStrided;
}
// Indices and values of a COO tensor; compressed indices, plain indices and values of the others.
// NotImplementedError for layouts that are none of these.
[[nodiscard]] std::vector<at::Tensor> components_of(const at::Tensor& tensor);
// Layout and whether it is coalesced: the `integers` of a wire::ArgKind::kSparse.
[[nodiscard]] std::vector<int64_t> form_of(const at::Tensor& tensor);

// The inverse; nothing is checked that would need the values of indices.
[[nodiscard]] at::Tensor sparse_tensor(const std::vector<int64_t>& form, at::IntArrayRef sizes,
                                       std::span<const at::Tensor> components);
// `target` becomes what `source` is, of which it takes the components: an op's new value of an
// argument that it changed. Both have one layout and dtype.
void take_components(const at::Tensor& target, const at::Tensor& source);

}  // namespace rgpu::backend
