#include "server/torch/cpu_gaps.h"

#include <ATen/core/Tensor.h>

namespace rgpu::server {
namespace {

// CUDA counts integers as well, in their own type; mixture-of-experts models rely on it. A double
// holds every integer that a histogram's bounds can tell apart.
void histc(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  c10::IValue& self = stack[stack.size() - op.schema().arguments().size()];
  const at::ScalarType dtype = self.toTensor().scalar_type();
  const bool is_gap = c10::isIntegralType(dtype, /*includeBool=*/false);
  if (is_gap) self = self.toTensor().to(at::kDouble);
  op.callBoxed(stack);
  if (is_gap) stack.back() = stack.back().toTensor().to(dtype);
}

}  // namespace

GapFiller cpu_gap_filler(std::string_view op, std::string_view overload) noexcept {
  return op == "aten::histc" && overload.empty() ? &histc : nullptr;
}

}  // namespace rgpu::server
