// Sparse tensors: put together from components for a call, taken apart into components afterwards.
//
// Handles stand for dense storages alone, so a sparse argument arrives as its components: indices
// and values of a COO tensor; compressed indices, plain indices and values of the others.
//
// Threading: the stream's thread.
// Errors:    throw c10::Error, as PyTorch does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Layout.h>

#include <cstdint>
#include <span>
#include <vector>

#include "server/torch/slot.h"
#include "wire/op_template.h"

namespace rgpu::server {

struct OpPlan;

struct SparseForm {
  c10::Layout layout = c10::Layout::Sparse;
  bool coalesced = false;
  std::vector<int64_t> sizes;  // Of the whole.
};

[[nodiscard]] SparseForm sparse_form(const wire::Arg& arg);
// The CPU's kernels trust indices and would write outside of their memory, so there they are
// checked first: one pass over them. An accelerator's kernels check their own, and a check would
// wait for the device.
[[nodiscard]] at::Tensor assemble(const SparseForm& form, std::span<const at::Tensor> components);
// Puts the components of sparse results in the places of these, but for results that `plan` lets
// have any layout.
void take_apart(std::vector<at::Tensor>& results, const OpPlan& plan);
// Binds a result of any layout, or its components, to the first of `slots` (wire::kComponentsMax of
// them) and tells what it is.
[[nodiscard]] wire::Arg bind_any_layout(const at::Tensor& result, std::span<const SlotPtr> slots);

}  // namespace rgpu::server
