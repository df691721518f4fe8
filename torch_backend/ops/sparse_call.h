// Sparse calls: ops whose arguments or results are sparse tensors, whole, as one record.
//
// Arguments go as their components. A result that is known to be dense is made without asking; of
// any other one the server tells layout and geometry: one wait, since how many elements a sparse
// result has depends on data. What needs no data is no record at all: see aten/sparse.cc.
//
// Threading: any thread. Errors: as issue(). An argument that a failed call was to change keeps its
// value.
#pragma once

#include <ATen/core/op_registration/adaption.h>
#include <ATen/core/stack.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// Replaces the call's arguments on the stack by its results.
void issue_sparse(const OpInfo& op, torch::jit::Stack* stack);

}  // namespace rgpu::backend
