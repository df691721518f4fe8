#include "torch_backend/ops/shape_rules.h"

#include <ATen/native/GroupedMMUtils.h>

#include <optional>

namespace rgpu::backend {
namespace {

// Meta takes bfloat16 alone (torch/_meta_registrations.py, _meta_grouped_mm_common, PyTorch 2.13
// and 2.14); CPU and CUDA take float32 and float16, too.
void grouped_mm(torch::jit::Stack& stack) {
  const std::optional<at::ScalarType> wanted = torch::jit::pop(stack).toOptional<at::ScalarType>();
  const std::optional<at::Tensor> bias = torch::jit::pop(stack).toOptional<at::Tensor>();
  const std::optional<at::Tensor> offsets = torch::jit::pop(stack).toOptional<at::Tensor>();
  const at::Tensor right = torch::jit::pop(stack).toTensor();
  const at::Tensor left = torch::jit::pop(stack).toTensor();
  at::native::_grouped_mm_validate_inputs(left, right, offsets, bias, wanted);
  const at::ScalarType dtype = at::native::_resolve_grouped_mm_out_dtype(left, right, wanted);
  stack.emplace_back(at::native::create_grouped_gemm_output_tensor(left, right, offsets, dtype));
}

}  // namespace

ShapeRule shape_rule_of(std::string_view op) noexcept {
  return op == "aten::_grouped_mm" ? &grouped_mm : nullptr;
}

}  // namespace rgpu::backend
