// Geometry: the dtype, sizes and strides of a template's tensor, checked once and shared by all
// templates of a session that use the same.
//
// Threading: a Geometry is constant; GeometryTable is the decode thread's.
// Errors:    intern() returns kInvalidArgument for what cannot be a tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::server {

struct Geometry {
  uint64_t id = 0;  // Never 0, never used again in a session: equal ids are equal values.
  c10::ScalarType dtype{};
  bool conj = false;
  bool neg = false;
  bool wrapped_number = false;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t element_count = 0;
  int64_t extent = 0;  // Elements from the first to behind the last one.
  uint64_t itemsize_bytes = 0;

  [[nodiscard]] bool fits(uint64_t storage_size_bytes, int64_t offset) const noexcept {
    if (offset < 0) return false;
    if (extent == 0) return true;  // A view of no elements may begin anywhere.
    const uint64_t elements = storage_size_bytes / itemsize_bytes;
    const auto start = static_cast<uint64_t>(offset);
    return start <= elements && static_cast<uint64_t>(extent) <= elements - start;
  }
  [[nodiscard]] bool is_differentiable() const noexcept {
    return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  }
  [[nodiscard]] at::Tensor make_tensor(c10::Storage storage, int64_t offset) const;
  // "float32[3, 3]"
  [[nodiscard]] std::string to_string() const;
};
using GeometryPtr = std::shared_ptr<const Geometry>;

// PyTorch's Python name: "float32".
[[nodiscard]] std::string dtype_name(c10::ScalarType dtype);
[[nodiscard]] std::string to_string(const at::Tensor& tensor);

class GeometryTable {
 public:
  // Flags that are not about the tensor's elements (kHasOffset, kRequiresGrad) make no difference.
  [[nodiscard]] Result<GeometryPtr> intern(const wire::TensorMeta& meta);
  void clear() { geometries_.clear(); }

 private:
  using Key = std::tuple<int8_t, uint8_t, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Key, GeometryPtr> geometries_;
  uint64_t next_id_ = 1;
};

}  // namespace rgpu::server
