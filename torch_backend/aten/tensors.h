// Kernels of device rgpu that PyTorch has no composite for: making tensors, views, storages.
//
// Signatures are PyTorch's. All are local: a new tensor's storage is a number the client chooses,
// a view is metadata, and the server hears of a storage when a record first uses it.
//
// Threading: any thread. Errors: as the CPU's kernels raise; a device index the server lacks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace rgpu::backend {

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> format);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory);
at::Tensor efficient_zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pin_memory);
at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> storage_offset);
at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes);
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides);
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step);
at::Tensor view_as_real(const at::Tensor& self);
at::Tensor view_as_complex(const at::Tensor& self);
const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format);
at::Tensor& set_source_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset,
                                      at::IntArrayRef sizes, at::IntArrayRef strides);
at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_(at::Tensor& self);
bool is_set_to(const at::Tensor& self, const at::Tensor& source);
void record_stream(at::Tensor& self, at::Stream stream);
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from);

}  // namespace rgpu::backend
