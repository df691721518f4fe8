#include "server/torch/op_results.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>

#include <utility>

namespace rgpu::server {
namespace {

// Strides of dimensions that have one element reach nothing, so they may differ.
bool same_layout(const at::Tensor& tensor, const Geometry& promised) {
  if (promised.element_count == 0) return true;
  const c10::IntArrayRef strides = tensor.strides();
  for (size_t i = 0; i < promised.sizes.size(); ++i) {
    if (promised.sizes[i] != 1 && strides[i] != promised.strides[i]) return false;
  }
  return true;
}

// Whether the result's storage can become the handle's as it is.
bool is_in_place(const at::Tensor& tensor, size_t owners_max) {
  const c10::Storage& storage = tensor.storage();
  return tensor.storage_offset() == 0 && !tensor.is_conj() && !tensor.is_neg() &&
         storage.use_count() <= owners_max;
}

}  // namespace

void flatten_result(c10::IValue result, std::vector<at::Tensor>& tensors,
                    std::vector<wire::Arg>& values) {
  wire::Arg value;
  if (result.isTensor()) {
    tensors.push_back(std::move(result).toTensor());
    return;
  }
  if (result.isTensorList() || result.isOptionalTensorList() || result.isList()) {
    for (c10::IValue item : std::move(result).toList().vec()) {
      flatten_result(std::move(item), tensors, values);
    }
    return;
  }
  if (result.isNone()) {
    tensors.emplace_back();
    return;
  }
  if (result.isBool()) {
    value.kind = wire::ArgKind::kBool;
    value.integer = result.toBool() ? 1 : 0;
  } else if (result.isInt()) {
    value.kind = wire::ArgKind::kInt;
    value.integer = result.toInt();
  } else if (result.isString()) {
    value.kind = wire::ArgKind::kString;
    value.text = result.toStringRef();
  } else if (result.isDouble()) {
    value.kind = wire::ArgKind::kDouble;
    value.real = result.toDouble();
  } else if (result.isComplexDouble()) {
    const c10::complex<double> number = result.toComplexDouble();
    value.kind = wire::ArgKind::kComplex;
    value.reals = {number.real(), number.imag()};
  }
  values.push_back(std::move(value));
}

std::optional<std::string> bind_new(at::Tensor result, const Geometry& promised, size_t owners_max,
                                    Slot& slot) {
  if (!result.defined() || result.layout() != c10::Layout::Strided || result._is_zerotensor() ||
      result.scalar_type() != promised.dtype || result.sizes() != promised.sizes) {
    return "promised " + promised.to_string() + ", got " + to_string(result);
  }
  const bool fits = promised.fits(result.storage().nbytes(), 0);
  if (fits && is_in_place(result, owners_max)) {
    if (result.strides() == promised.strides) {
      slot.set_tensor(std::move(result), promised);
      return std::nullopt;
    }
    if (same_layout(result, promised)) {
      slot.set_storage(result.storage());
      return std::nullopt;
    }
  }
  at::Tensor copy = at::empty_strided(promised.sizes, promised.strides, result.options());
  copy.copy_(result);
  slot.set_tensor(std::move(copy), promised);
  return std::nullopt;
}

wire::TensorMeta bind_unknown(at::Tensor result, Slot& slot) {
  if (!result.is_non_overlapping_and_dense() || !is_in_place(result, 1)) {
    at::Tensor copy =
        at::empty_strided(result.sizes(), at::infer_dense_strides(result.sizes(), result.strides()),
                          result.options());
    copy.copy_(result);
    result = std::move(copy);
  }
  slot.set_storage(result.storage());
  wire::TensorMeta meta;
  meta.dtype = static_cast<int8_t>(result.scalar_type());
  meta.sizes = result.sizes().vec();
  meta.strides = result.strides().vec();
  return meta;
}

}  // namespace rgpu::server
