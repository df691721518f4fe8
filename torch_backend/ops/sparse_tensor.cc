#include "torch_backend/ops/sparse_tensor.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>

namespace rgpu::backend {

std::vector<at::Tensor> components_of(const at::Tensor& tensor) {
  if (tensor.is_sparse()) {
    const auto* impl = at::sparse::get_sparse_impl(tensor);
    return {impl->indices(), impl->values()};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(at::sparse_csr::is_sparse_compressed(tensor),
                              "rgpu: tensors of layout ", tensor.layout(), " are not supported");
  auto* impl = at::sparse_csr::get_sparse_csr_impl(tensor);
  return {impl->compressed_indices(), impl->plain_indices(), impl->values()};
}

std::vector<int64_t> form_of(const at::Tensor& tensor) {
  const bool coalesced = tensor.is_sparse() && at::sparse::get_sparse_impl(tensor)->coalesced();
  return {static_cast<int64_t>(tensor.layout()), coalesced ? 1 : 0};
}

at::Tensor sparse_tensor(const std::vector<int64_t>& form, at::IntArrayRef sizes,
                         std::span<const at::Tensor> components) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto layout = static_cast<at::Layout>(form.at(0));
  const at::Tensor& values = components.back();
  const at::TensorOptions options = values.options().layout(layout);
  if (layout == at::kSparse) {
    return at::_sparse_coo_tensor_unsafe(components[0], values, sizes, options, form.at(1) != 0);
  }
  return at::_sparse_compressed_tensor_unsafe(components[0], components[1], values, sizes, options);
}

void take_components(const at::Tensor& target, const at::Tensor& source) {
  TORCH_CHECK(target.layout() == source.layout(), "rgpu: a tensor of layout ", target.layout(),
              " cannot become one of layout ", source.layout());
  TORCH_CHECK(target.scalar_type() == source.scalar_type(), "rgpu: a tensor of dtype ",
              target.scalar_type(), " cannot become one of dtype ", source.scalar_type());
  const std::vector<at::Tensor> components = components_of(source);
  if (target.is_sparse()) {
    auto* impl = at::sparse::get_sparse_impl(target);
    impl->raw_resize_(source.sparse_dim(), source.dense_dim(), source.sizes());
    impl->set_indices_and_values_unsafe(components[0], components[1]);
    impl->set_coalesced(source.is_coalesced());
    return;
  }
  at::sparse_csr::get_sparse_csr_impl(target)->set_member_tensors(components[0], components[1],
                                                                  components[2], source.sizes());
}

}  // namespace rgpu::backend
