#include "server/torch/geometry.h"

#include <ATen/TensorUtils.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <utility>

namespace rgpu::server {
namespace {

using wire::TensorMeta;

constexpr uint8_t kElementFlags = TensorMeta::kConj | TensorMeta::kNeg | TensorMeta::kWrappedNumber;

std::string shape_text(c10::IntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(sizes[i]);
  }
  return text + "]";
}

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

}  // namespace

std::string dtype_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Char:
      return "int8";
    case c10::ScalarType::Short:
      return "int16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::ComplexHalf:
      return "complex32";
    case c10::ScalarType::ComplexFloat:
      return "complex64";
    case c10::ScalarType::ComplexDouble:
      return "complex128";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::UInt16:
      return "uint16";
    case c10::ScalarType::UInt32:
      return "uint32";
    case c10::ScalarType::UInt64:
      return "uint64";
    default:
      return c10::toString(dtype);
  }
}

std::string to_string(const at::Tensor& tensor) {
  if (!tensor.defined()) return "None";
  return dtype_name(tensor.scalar_type()) + shape_text(tensor.sizes());
}

std::string Geometry::to_string() const { return dtype_name(dtype) + shape_text(sizes); }

at::Tensor Geometry::make_tensor(c10::Storage storage, int64_t offset) const {
  const c10::DispatchKey key =
      c10::computeDispatchKey(dtype, c10::Layout::Strided, storage.device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(dtype));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (conj) impl->_set_conj(true);
  if (neg) impl->_set_neg(true);
  if (wrapped_number) impl->set_wrapped_number(true);
  return tensor;
}

Result<GeometryPtr> GeometryTable::intern(const TensorMeta& meta) {
  const auto flags = static_cast<uint8_t>(meta.flags & kElementFlags);
  Key key(meta.dtype, flags, meta.sizes, meta.strides);
  const auto found = geometries_.find(key);
  if (found != geometries_.end()) return found->second;

  const auto dtype = static_cast<c10::ScalarType>(meta.dtype);
  if (meta.dtype < 0 || dtype >= c10::ScalarType::NumOptions ||
      dtype == c10::ScalarType::Undefined || c10::isQIntType(dtype) || c10::isBitsType(dtype)) {
    return invalid("dtype " + std::to_string(meta.dtype) + " is not supported");
  }
  auto geometry = std::make_shared<Geometry>();
  geometry->dtype = dtype;
  geometry->itemsize_bytes = c10::elementSize(dtype);
  geometry->conj = (flags & TensorMeta::kConj) != 0;
  geometry->neg = (flags & TensorMeta::kNeg) != 0;
  geometry->wrapped_number = (flags & TensorMeta::kWrappedNumber) != 0;
  if (geometry->conj && !c10::isComplexType(dtype)) return invalid("conj of a real tensor");
  if (geometry->wrapped_number && !meta.sizes.empty()) {
    return invalid("a wrapped number with dimensions");
  }
  int64_t count = 1;
  int64_t last = 0;  // Offset of the last element.
  bool overflow = false;
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    int64_t reach = 0;
    const int64_t size = meta.sizes[i];
    if (size < 0 || meta.strides[i] < 0) return invalid("a negative size or stride");
    overflow |= __builtin_mul_overflow(count, size, &count);
    overflow |= size > 1 && __builtin_mul_overflow(size - 1, meta.strides[i], &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
  }
  int64_t size_bytes = 0;
  overflow |= __builtin_add_overflow(last, int64_t{1}, &last);
  overflow |=
      __builtin_mul_overflow(last, static_cast<int64_t>(geometry->itemsize_bytes), &size_bytes);
  if (overflow) return invalid("a tensor too large to address");
  geometry->element_count = count;
  geometry->extent = count == 0 ? 0 : last;
  geometry->sizes = meta.sizes;
  geometry->strides = meta.strides;
  geometry->id = next_id_++;
  GeometryPtr interned = std::move(geometry);
  geometries_.emplace(std::move(key), interned);
  return interned;
}

}  // namespace rgpu::server
