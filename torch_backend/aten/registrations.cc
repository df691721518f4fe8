// The registration tables of device rgpu; no logic beyond choosing which ops go over whole.
#include "torch_backend/aten/registrations.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "torch_backend/aten/sparse.h"
#include "torch_backend/aten/tensors.h"
#include "torch_backend/device/initial_values.h"
#include "torch_backend/ops/composite.h"
#include "torch_backend/ops/graph_call.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/transfer.h"

namespace rgpu::backend {
namespace {

// Composites that must stay composites: they make or copy tensors (and may change the device), or
// change an argument's own metadata.
constexpr auto kComposite = std::to_array<std::string_view>({
    "aten::copy_",
    "aten::_to_copy",
    "aten::resize_as_",
    "aten::_resize_output_",
    "aten::set_",
    "aten::t_",
    "aten::transpose_",
    "aten::swapaxes_",
    "aten::swapdims_",
    "aten::squeeze_",
    "aten::unsqueeze_",
    "aten::as_strided_",
    "aten::detach_",
    "aten::lift",
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::pin_memory",
    "aten::is_same_size",
    "aten::is_set_to",
    "aten::_has_same_storage_numel",
    "aten::_is_zerotensor",
    "aten::is_coalesced",
    "aten::_nested_tensor_size",
    "aten::dense_dim",
    "aten::sparse_dim",
    "aten::_dimI",
    "aten::_dimV",
    "aten::_nnz",
    "aten::_reshape_copy",
    "aten::_fw_primal",
    "aten::_make_dual",
    "aten::_assert_async",
    "aten::record_stream",
    "aten::data",
    "aten::set_data",
    "aten::_local_scalar_dense",
    "aten::_fused_sdp_choice",
    "aten::_has_compatible_shallow_copy_type",
    "aten::resize_",
    "aten::resize_as_sparse_",
    "aten::_version",
    "aten::output_nr",
    "aten::requires_grad_",
    "aten::retain_grad",
    "aten::is_leaf",
    "aten::_backward",
    "aten::item",
    "aten::allclose",
    "aten::_conj_physical",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::conj_physical_",
    "aten::copy",
    "aten::is_nonzero",
    "aten::_foobar",
    "aten::_print",
    "aten::sym_size",
    "aten::sym_stride",
    "aten::sym_numel",
    "aten::sym_storage_offset",
    "aten::size",
    "aten::stride",
    "aten::numel",
    "aten::storage_offset",
    "aten::sparse_resize_",
    "aten::sparse_resize_and_clear_",
    "aten::_coalesced_",
    "aten::_indices",
    "aten::_values",
    "aten::indices",
    "aten::values",
    "aten::crow_indices",
    "aten::col_indices",
    "aten::to_dense",
    "aten::_to_dense",
    "aten::to_sparse",
    "aten::_to_sparse",
    "aten::to_mkldnn",
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    "aten::qscheme",
    "aten::q_scale",
    "aten::q_zero_point",
    "aten::int_repr",
    "aten::fill_diagonal_copy",
    "aten::_unsafe_view",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
    "aten::_pack_padded_sequence",
    "aten::_lazy_clone",
    "aten::storage_offset",
    "aten::_cow_clone",
    "aten::rename_",
    "aten::real",
    "aten::imag",
});

// Ops that go over whole, forward and backward, with a graph kept on the server.
constexpr std::array<const char*, 13> kGraphCalls = {"lstm_cell",
                                                     "gru_cell",
                                                     "rnn_tanh_cell",
                                                     "rnn_relu_cell",
                                                     "scaled_dot_product_attention",
                                                     "lstm.input",
                                                     "lstm.data",
                                                     "gru.input",
                                                     "gru.data",
                                                     "rnn_tanh.input",
                                                     "rnn_tanh.data",
                                                     "rnn_relu.input",
                                                     "rnn_relu.data"};

bool takes_tensor(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& a) {
                       return a.type()->isSubtypeOf(*c10::TensorType::get()) ||
                              a.type()->isSubtypeOf(*c10::ListType::ofTensors()) ||
                              a.type()->str().find("Tensor") != std::string::npos;
                     });
}

bool takes_device(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const c10::Argument& a) { return a.name() == "device"; });
}

bool returns_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& a) {
    return a.alias_info() != nullptr && !a.alias_info()->isWrite();
  });
}

// One record each: whatever is not a composite over other ops by its nature (views, factories), so
// that layer_norm, convolution, sort … reach the server as they would reach CUDA.
bool goes_whole(const c10::OperatorHandle& op) {
  if (op.operator_name().name.rfind("aten::", 0) != 0 || !op.hasSchema()) return false;
  const c10::FunctionSchema& schema = op.schema();
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return false;
  }
  return takes_tensor(schema) && !takes_device(schema) && !returns_view(schema) &&
         std::find(kComposite.begin(), kComposite.end(), op.operator_name().name) ==
             kComposite.end();
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  return copy_between(source, target, non_blocking);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  if (InitialValues::get().fill(self, value)) return self;
  static const OpInfo& op = op_info("aten::fill_", "Scalar");
  torch::jit::Stack stack{self, value};
  issue(op, &stack);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_between(source, target, false);
}

// Whether TransformerEncoder may pack its padded batch into a nested tensor, which this device does
// not have: it then goes on with the padded one and the mask. Asks nobody.
bool nested_tensor_from_mask_left_aligned(const at::Tensor& /*batch*/, const at::Tensor& /*mask*/) {
  return false;
}

}  // namespace

void register_kernels() {
  using c10::DispatchKey;
  static torch::Library device(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__,
                               __LINE__);
  static torch::Library autograd(torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse1,
                                 __FILE__, __LINE__);
  device.impl("empty.memory_format", &empty_memory_format);
  device.impl("empty_strided", &empty_strided);
  device.impl("_efficientzerotensor", &efficient_zero_tensor);
  device.impl("as_strided", &as_strided);
  device.impl("view", &view);
  device.impl("_reshape_alias", &reshape_alias);
  device.impl("unfold", &unfold);
  device.impl("view_as_real", &view_as_real);
  device.impl("view_as_complex", &view_as_complex);
  device.impl("resize_", &resize_);
  device.impl("set_.source_Storage", &set_source_storage);
  device.impl("set_.source_Storage_storage_offset", &set_source_storage_offset);
  device.impl("set_.source_Tensor", &set_source_tensor);
  device.impl("set_", &set_);
  device.impl("is_set_to", &is_set_to);
  device.impl("record_stream", &record_stream);
  device.impl("fill_.Scalar", &fill);
  device.impl("_copy_from", &copy_from);
  device.impl("_copy_from_and_resize", &copy_from_and_resize);
  device.impl("_local_scalar_dense", &local_scalar);
  device.impl("_nested_tensor_from_mask_left_aligned", &nested_tensor_from_mask_left_aligned);
  device.impl("_to_copy", &to_copy);
  device.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  autograd.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  for (const char* name : kGraphCalls) {
    device.impl(name, torch::CppFunction::makeFromBoxedFunction<&graph_call_plain>());
    autograd.impl(name, torch::CppFunction::makeFromBoxedFunction<&graph_call_autograd>());
  }
  register_sparse_kernels();
  register_recurrent_cells(autograd);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op.has_value() || !goes_whole(*op)) continue;
    const std::string target =
        name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    device.impl(target.c_str(),
                torch::CppFunction::makeFromBoxedFunctor(std::make_unique<IssueKernel>(*op)));
  }
  static torch::Library fallback(torch::Library::IMPL, "_", DispatchKey::PrivateUse1, __FILE__,
                                 __LINE__);
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&issue_fallback>());
  // The lazy bits travel with the copy, which handles both.
  static torch::Library conjugate(torch::Library::IMPL, "aten", DispatchKey::Conjugate, __FILE__,
                                  __LINE__);
  static torch::Library negative(torch::Library::IMPL, "aten", DispatchKey::Negative, __FILE__,
                                 __LINE__);
  conjugate.impl("_copy_from", torch::CppFunction::makeFallthrough());
  negative.impl("_copy_from", torch::CppFunction::makeFallthrough());
  register_autocast();
}

}  // namespace rgpu::backend
