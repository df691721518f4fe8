// Binding an op's results to new handles: every result is held against the promised geometry.
//
// Threading: the stream's thread. Throws c10::Error when a copy into place fails.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "server/torch/op_plan.h"
#include "server/torch/slot.h"
#include "wire/messages.h"

namespace rgpu::server {

// Tensors of `result` in order, lists flattened; what is no tensor is appended to `values`.
void flatten_result(c10::IValue result, std::vector<at::Tensor>& tensors,
                    std::vector<wire::Arg>& values);

// `owners_max`: references to the result's storage that are no alias (1, and 1 for a kept graph).
// The message of a broken promise, or nothing.
[[nodiscard]] std::optional<std::string> bind_new(at::Tensor result, const Geometry& promised,
                                                  size_t owners_max, Slot& slot);
// Puts `result` on a storage of its own, dense and in its order of dimensions; returns what it is.
[[nodiscard]] wire::TensorMeta bind_unknown(at::Tensor result, Slot& slot);

}  // namespace rgpu::server
