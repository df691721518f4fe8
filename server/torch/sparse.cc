#include "server/torch/sparse.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>

#include "server/torch/op_plan.h"
#include "server/torch/op_results.h"

namespace rgpu::server {
namespace {

std::vector<at::Tensor> components_of(const at::Tensor& tensor) {
  if (tensor.layout() == c10::Layout::Sparse) return {tensor._indices(), tensor._values()};
  TORCH_CHECK_NOT_IMPLEMENTED(at::sparse_csr::is_sparse_compressed(tensor), "a result of layout ",
                              tensor.layout(), " cannot be sent");
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(tensor);
  return {compressed, plain, tensor.values()};
}

wire::Arg tensor_arg(wire::TensorMeta meta) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kTensor;
  arg.tensor = std::move(meta);
  return arg;
}

}  // namespace

SparseForm sparse_form(const wire::Arg& arg) {
  return {static_cast<c10::Layout>(arg.integers.at(0)), arg.integers.at(1) != 0, arg.tensor.sizes};
}

at::Tensor assemble(const SparseForm& form, std::span<const at::Tensor> components) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor& values = components.back();
  const bool checks = values.is_cpu();
  const at::TensorOptions options = values.options().layout(form.layout);
  if (form.layout == c10::Layout::Sparse) {
    if (checks) at::_validate_sparse_coo_tensor_args(components[0], values, form.sizes);
    return at::_sparse_coo_tensor_unsafe(components[0], values, form.sizes, options,
                                         form.coalesced);
  }
  if (checks) {
    at::_validate_sparse_compressed_tensor_args(components[0], components[1], values, form.sizes,
                                                form.layout);
  }
  return at::_sparse_compressed_tensor_unsafe(components[0], components[1], values, form.sizes,
                                              options);
}

void take_apart(std::vector<at::Tensor>& results, const OpPlan& plan) {
  std::vector<at::Tensor> apart;
  for (at::Tensor& result : results) {
    const bool is_sparse = result.defined() && result.layout() != c10::Layout::Strided;
    const bool stays = apart.size() >= plan.outputs.size() ||
                       plan.outputs[apart.size()].kind == wire::OutputKind::kAnyLayout;
    if (!is_sparse || stays) {
      apart.push_back(std::move(result));
      continue;
    }
    for (at::Tensor& component : components_of(result)) apart.push_back(std::move(component));
  }
  results = std::move(apart);
}

wire::Arg bind_any_layout(const at::Tensor& result, std::span<const SlotPtr> slots) {
  if (!result.defined()) return {};
  if (result.layout() == c10::Layout::Strided) return tensor_arg(bind_unknown(result, *slots[0]));
  std::vector<at::Tensor> components = components_of(result);
  const bool is_coo = result.layout() == c10::Layout::Sparse;
  wire::Arg whole;
  whole.kind = wire::ArgKind::kSparse;
  whole.tensor.dtype = static_cast<int8_t>(result.scalar_type());
  whole.tensor.sizes = result.sizes().vec();
  whole.tensor.strides.assign(whole.tensor.sizes.size(), 0);
  whole.integers = {static_cast<int64_t>(result.layout()), is_coo && result.is_coalesced() ? 1 : 0};
  for (size_t i = 0; i < components.size(); ++i) {
    whole.items.push_back(tensor_arg(bind_unknown(std::move(components[i]), *slots[i])));
  }
  return whole;
}

}  // namespace rgpu::server
