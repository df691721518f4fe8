// Autocast on device rgpu: PyTorch's own op lists, those of CUDA.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "torch_backend/aten/registrations.h"

namespace {

using namespace at::autocast;  // The macros name the policies without their namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

Tensor refuse_binary_cross_entropy(const Tensor& /*input*/, const Tensor& /*target*/,
                                   const std::optional<Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast. Many models "
              "use a sigmoid layer right before the binary cross entropy layer. In this case, "
              "combine the two layers "
              "using torch.nn.functional.binary_cross_entropy_with_logits or "
              "torch.nn.BCEWithLogitsLoss, which are "
              "safe to autocast.");
}

c10::IValue cast(const c10::IValue& value, ScalarType dtype) {
  if (value.isTensor()) return cached_cast(dtype, value.toTensor(), c10::DeviceType::PrivateUse1);
  if (!value.isTensorList()) return value;
  const std::vector<Tensor> tensors = value.toTensorVector();
  return cached_cast(dtype, at::TensorList(tensors), c10::DeviceType::PrivateUse1);
}

// Recurrent networks go over whole, so their weights are cast here, as cuDNN's are on CUDA.
void cast_recurrent(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const ScalarType dtype = get_autocast_dtype(c10::DeviceType::PrivateUse1);
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t i = first; i < stack->size(); ++i) (*stack)[i] = cast((*stack)[i], dtype);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define _KERNEL_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(_KERNEL_LOWER_PRECISION)
#undef _KERNEL_LOWER_PRECISION
#define _KERNEL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(_KERNEL_FP32)
#undef _KERNEL_FP32
#define _KERNEL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(_KERNEL_FP32_SET_OPT_DTYPE)
#undef _KERNEL_FP32_SET_OPT_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define _KERNEL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(_KERNEL_PROMOTE)
#undef _KERNEL_PROMOTE
  for (const char* name : {"lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input",
                           "rnn_tanh.data", "rnn_relu.input", "rnn_relu.data"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast_recurrent>());
  }
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"),
         TORCH_FN((&refuse_binary_cross_entropy)));
}

}  // namespace

namespace rgpu::backend {

// The tables above register when this file's object is linked in; calling this makes sure it is.
void register_autocast() {}

}  // namespace rgpu::backend
