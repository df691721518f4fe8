// The composite of an op that goes over whole as a graph call: the same function in ops that
// autograd can differentiate any number of times, in either direction.
//
// Used where the graph on the server cannot serve: second derivatives, forward-mode AD, tensors
// that stand for others (vmap, torch.func, tensor subclasses) and dispatch modes.
//
// Threading: any thread, above autograd. Errors: as issue().
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// Whether the call draws numbers: another run of it would not compute the same function.
[[nodiscard]] bool draws(const OpInfo& op, const torch::jit::Stack& arguments);

// The results of the call whose arguments are all of `arguments`.
[[nodiscard]] torch::autograd::variable_list run_composite(const OpInfo& op,
                                                           torch::jit::Stack arguments);

// The gradients of the call's results weighted by `gradients`, towards those of `inputs` that
// require grad. `inputs` are the tensors among `arguments`, in order.
[[nodiscard]] torch::autograd::variable_list differentiate_once(
    const OpInfo& op, const torch::jit::Stack& arguments,
    const torch::autograd::variable_list& inputs, const torch::autograd::variable_list& gradients);

// A second derivative of the call: of its first derivative for `gradients`, weighted by `weights`
// (one for each result of differentiate_once(), some undefined), towards `inputs` and `gradients`,
// in this order; undefined for those that require none.
[[nodiscard]] torch::autograd::variable_list differentiate_twice(
    const OpInfo& op, const torch::jit::Stack& arguments,
    const torch::autograd::variable_list& inputs, const torch::autograd::variable_list& gradients,
    const torch::autograd::variable_list& weights);

// `value` with each defined tensor in it replaced by what `replace` makes of it.
template <typename Replace>
[[nodiscard]] c10::IValue replace_tensors(const c10::IValue& value, Replace& replace) {
  if (value.isTensor()) return value.toTensor().defined() ? replace(value.toTensor()) : value;
  if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
  c10::impl::GenericList replaced(value.toList().elementType());
  for (const c10::IValue& item : value.toListRef()) {
    replaced.push_back(replace_tensors(item, replace));
  }
  return replaced;
}

// The fused cells that the composites of LSTM and GRU use on a device that is no CPU.
void register_recurrent_cells(torch::Library& autograd);

}  // namespace rgpu::backend
