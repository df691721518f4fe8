// The kernels that must be written: making tensors, views, storages. Registered in
// registrations.cc.
#include "torch_backend/aten/tensors.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <c10/util/strides.h>

#include "torch_backend/device/guard.h"
#include "torch_backend/device/host_values.h"
#include "torch_backend/device/storage.h"

namespace rgpu::backend {
namespace {

c10::DeviceIndex checked_index(std::optional<at::Device> device) {
  const c10::DeviceIndex index = or_current(device.has_value() ? device->index() : -1);
  check_device(index);
  return index;
}

at::Tensor make_empty(at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                      std::optional<at::Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided,
                              "rgpu: tensors of layout ", *layout, " are not supported");
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(c10::dtype_or_default(dtype));
  const size_t size_bytes = at::detail::computeStorageNbytes(sizes, strides, type.itemsize());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(make_fresh_storage(size_bytes, checked_index(device),
                                      HostValues::takes(type.toScalarType(), size_bytes))),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// torch.utils.deterministic.fill_uninitialized_memory
bool fills_new_memory() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

at::Tensor filled_if_deterministic(at::Tensor tensor) {
  if (fills_new_memory()) [[unlikely]]
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

}  // namespace

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  at::Tensor tensor =
      make_empty(sizes, c10::contiguous_strides(sizes), dtype, layout, device, pin_memory);
  if (format.has_value() && *format != at::MemoryFormat::Contiguous &&
      *format != at::MemoryFormat::Preserve) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return filled_if_deterministic(std::move(tensor));
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  at::detail::check_size_nonnegative(sizes);
  TORCH_CHECK(sizes.size() == strides.size(), "dimensionality of sizes (", sizes.size(),
              ") must match dimensionality of strides (", strides.size(), ")");
  return filled_if_deterministic(make_empty(sizes, strides, dtype, layout, device, pin_memory));
}

at::Tensor efficient_zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                                 std::optional<bool> pin_memory) {
  return at::zeros(
      sizes,
      at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pin_memory));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, storage_offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  return at::native::view(self, sizes);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }

at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != sizes) {
    at::detail::check_size_nonnegative(sizes);
    const size_t needed = at::detail::computeStorageNbytesContiguous(
        sizes, impl->itemsize(), static_cast<size_t>(impl->storage_offset()));
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto before = static_cast<int64_t>(storage->nbytes());
    if (storage->nbytes() < needed) resize_storage(storage, needed);
    impl->set_sizes_contiguous(sizes);
    if (fills_new_memory()) [[unlikely]]
      at::native::fill_resize_deterministic_(self, before);
  }
  if (format.has_value() && *format != at::MemoryFormat::Preserve)
    impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_source_storage_offset(self, std::move(source), 0, {elements}, {});
}

at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t storage_offset,
                                      at::IntArrayRef sizes, at::IntArrayRef strides) {
  TORCH_CHECK(source.device().type() == kDeviceType,
              "rgpu: set_ needs a storage of device rgpu, not ", source.device());
  TORCH_CHECK(source.device() == self.device(),
              "Attempted to set the storage of a tensor on device \"", self.device(),
              "\" to a storage on different device \"", source.device(),
              "\".  This is no longer allowed; the devices must match.");
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  const std::vector<int64_t> default_strides =
      strides.empty() ? c10::IntArrayRef(c10::contiguous_strides(sizes)).vec() : strides.vec();
  const size_t needed = at::detail::computeStorageNbytes(sizes, default_strides, impl->itemsize(),
                                                         static_cast<size_t>(storage_offset));
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage->nbytes() < needed) resize_storage(storage, needed);
  impl->set_sizes_and_strides(sizes, default_strides, storage_offset);
  return self;
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

at::Tensor& set_(at::Tensor& self) {
  return set_source_storage_offset(
      self, c10::Storage(make_fresh_storage(0, self.device().index(), false)), 0, {0}, {1});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& source) {
  return self.storage().is_alias_of(source.storage()) &&
         self.storage_offset() == source.storage_offset() && self.sizes() == source.sizes() &&
         self.strides() == source.strides();
}

void record_stream(at::Tensor& /*self*/, at::Stream /*stream*/) {
  // Frees follow every use in the session's own order, so there is nothing to remember.
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  // True between the CPU and rgpu: Module.to then keeps the Parameter objects, with what is tied to
  // them, also after a forward that tracked gradients.
  const auto dense = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (t.device().is_cpu() || t.device().type() == kDeviceType);
  };
  return dense(self) && dense(from);
}

}  // namespace rgpu::backend
