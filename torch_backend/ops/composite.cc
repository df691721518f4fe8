#include "torch_backend/ops/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "torch_backend/device/client.h"

namespace rgpu::backend {
namespace {

using torch::autograd::variable_list;

constexpr const char* kAttention = "aten::scaled_dot_product_attention";

// Whether a server on a CPU runs the call whole, by the kernel that PyTorch's CPU chooses.
bool has_cpu_kernel(const torch::jit::Stack& given, const std::optional<at::Tensor>& mask) {
  const at::Tensor query = given[0].toTensor();
  const at::Tensor key = given[1].toTensor();
  const at::Tensor value = given[2].toTensor();
  const bool draws = given[4].toDouble() > 0;
  const bool groups = given[7].toBool();
  if (draws || groups || (mask && mask->requires_grad())) return false;
  for (const at::Tensor* t : {&query, &key, &value}) {
    const bool fits = t->dim() == 4 && t->is_floating_point() && t->sym_numel() != 0 &&
                      t->sym_stride(3) == 1 && t->scalar_type() == query.scalar_type();
    if (!fits) return false;
  }
  if (mask && mask->dim() != 2 && mask->dim() != 4) return false;
  return query.sym_size(3) == key.sym_size(3) && query.sym_size(3) == value.sym_size(3) &&
         query.sym_size(0) == key.sym_size(0) && query.sym_size(1) == key.sym_size(1) &&
         key.sym_size(2) == value.sym_size(2) && value.sym_size(1) == key.sym_size(1);
}

// While a graph is captured (a dispatch mode sees the calls), its nodes are what the server has.
bool is_captured_for_cpu() {
  return c10::impl::dispatch_mode_enabled() && Client::get().connected() &&
         Client::get().server_info().device_type == "cpu";
}

// scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, *, scale, gqa)
variable_list attend(const torch::jit::Stack& given) {
  std::optional<at::Tensor> mask = given[3].toOptional<at::Tensor>();
  const at::Tensor query = given[0].toTensor();
  if (mask && mask->defined() && mask->scalar_type() == at::kBool) {
    const at::Tensor none = at::zeros({}, query.options());
    mask = at::where(*mask, none, none - std::numeric_limits<double>::infinity());
  }
  if (mask && !mask->defined()) mask.reset();
  if (is_captured_for_cpu() && has_cpu_kernel(given, mask)) {
    return {std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        query, given[1].toTensor(), given[2].toTensor(), given[4].toDouble(), given[5].toBool(),
        mask, given[6].toOptional<double>()))};
  }
  auto [out, weights] = at::_scaled_dot_product_attention_math(
      query, given[1].toTensor(), given[2].toTensor(), mask, given[4].toDouble(), given[5].toBool(),
      /*dropout_mask=*/std::nullopt, given[6].toOptional<double>(), given[7].toBool());
  return {std::move(out)};
}

at::Tensor with_bias(const at::Tensor& gates, const std::optional<at::Tensor>& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

// The workspaces hold what PyTorch's own backward of the fused cell reads; nobody does here.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cell,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor gates =
      with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);
  const at::Tensor new_cell =
      at::sigmoid(parts[1]) * cell + at::sigmoid(parts[0]) * at::tanh(parts[2]);
  return {at::sigmoid(parts[3]) * at::tanh(new_cell), new_cell, gates};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates,
                                            const at::Tensor& hidden,
                                            const std::optional<at::Tensor>& input_bias,
                                            const std::optional<at::Tensor>& hidden_bias) {
  const at::Tensor input = with_bias(input_gates, input_bias);
  const auto from_input = input.chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const at::Tensor reset = at::sigmoid(from_input[0] + from_hidden[0]);
  const at::Tensor update = at::sigmoid(from_input[1] + from_hidden[1]);
  const at::Tensor fresh = at::tanh(from_input[2] + reset * from_hidden[2]);
  return {fresh + update * (hidden - fresh), input};
}

bool wants_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

variable_list those_that_want(const variable_list& list) {
  variable_list found;
  std::copy_if(list.begin(), list.end(), std::back_inserter(found), wants_gradient);
  return found;
}

// One input may depend on another, and here each stands for itself.
variable_list aliases_of(const variable_list& list) {
  variable_list aliases;
  for (const at::Tensor& t : list) aliases.push_back(wants_gradient(t) ? at::alias(t) : t);
  return aliases;
}

// The sum of outputs · weights towards `inputs`; undefined where one has no part in it.
variable_list differentiate(const variable_list& outputs, const variable_list& inputs,
                            const variable_list& weights, bool create_graph) {
  variable_list from;
  variable_list by;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!wants_gradient(outputs[i]) || !weights[i].defined()) continue;
    from.push_back(outputs[i]);
    by.push_back(weights[i]);
  }
  if (from.empty() || inputs.empty()) return variable_list(inputs.size());
  return torch::autograd::grad(from, inputs, by, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

variable_list first_derivative(const OpInfo& op, const torch::jit::Stack& arguments,
                               const variable_list& inputs, const variable_list& gradients,
                               bool create_graph) {
  size_t next = 0;
  const auto replace = [&](const at::Tensor&) -> c10::IValue { return inputs[next++]; };
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) stack.push_back(replace_tensors(argument, replace));
  return differentiate(run_composite(op, std::move(stack)), those_that_want(inputs), gradients,
                       create_graph);
}

}  // namespace

bool draws(const OpInfo& op, const torch::jit::Stack& arguments) {
  if (op.name == kAttention) return arguments[4].toDouble() > 0;
  for (size_t i = 0; i < op.rules.size(); ++i) {
    if (op.schema->arguments()[i].name() != "dropout") continue;
    return arguments[i].toDouble() > 0 && arguments[i + 1].toBool();  // `train` follows.
  }
  return false;
}

variable_list run_composite(const OpInfo& op, torch::jit::Stack arguments) {
  if (op.name == kAttention) return attend(arguments);
  // The composite itself is what every backend without a kernel of its own has under its key.
  op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradMeta), &arguments);
  variable_list results;
  for (const c10::IValue& result : arguments) results.push_back(result.toTensor());
  return results;
}

variable_list differentiate_once(const OpInfo& op, const torch::jit::Stack& arguments,
                                 const variable_list& inputs, const variable_list& gradients) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode tracked(true);
  return first_derivative(op, arguments, aliases_of(inputs), gradients, create_graph);
}

variable_list differentiate_twice(const OpInfo& op, const torch::jit::Stack& arguments,
                                  const variable_list& inputs, const variable_list& gradients,
                                  const variable_list& weights) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode tracked(true);
  const variable_list own_inputs = aliases_of(inputs);
  const variable_list own_gradients = aliases_of(gradients);
  const variable_list first = first_derivative(op, arguments, own_inputs, own_gradients, true);
  variable_list towards = those_that_want(own_inputs);
  for (const at::Tensor& g : those_that_want(own_gradients)) towards.push_back(g);
  const variable_list second = differentiate(first, towards, weights, create_graph);
  variable_list results;
  size_t next = 0;
  for (const variable_list* list : {&own_inputs, &own_gradients}) {
    for (const at::Tensor& t : *list) {
      results.push_back(wants_gradient(t) ? second[next++] : at::Tensor());
    }
  }
  return results;
}

void register_recurrent_cells(torch::Library& autograd) {
  autograd.impl("_thnn_fused_lstm_cell", &lstm_cell);
  autograd.impl("_thnn_fused_gru_cell", &gru_cell);
}

}  // namespace rgpu::backend
