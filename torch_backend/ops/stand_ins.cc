#include "torch_backend/ops/stand_ins.h"

#include <ATen/core/List.h>

#include <cstring>

#include "torch_backend/device/storage.h"

namespace rgpu::backend {

c10::IValue StandIns::convert(const c10::IValue& value) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isGenerator()) return {};
  if (value.isDevice() && value.toDevice().type() == kDeviceType) return c10::Device(type_);
  if (value.isList()) {
    const auto list = value.toList();
    c10::impl::GenericList converted(list.elementType());
    for (const c10::IValue& item : value.toListRef()) converted.push_back(convert(item));
    return converted;
  }
  return value;
}

at::Tensor StandIns::convert(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kDeviceType) return tensor;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const auto key = type_ == c10::DeviceType::CPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta;
  at::Tensor stand_in = at::detail::make_tensor<c10::TensorImpl>(
      storage_of(impl.unsafe_storage()), c10::DispatchKeySet(key), impl.dtype());
  c10::TensorImpl* made = stand_in.unsafeGetTensorImpl();
  made->set_sizes_and_strides(impl.sizes(), impl.strides(), impl.storage_offset());
  if (impl.is_wrapped_number()) made->set_wrapped_number(true);
  if (impl.is_conj()) stand_in._set_conj(true);
  if (impl.is_neg()) stand_in._set_neg(true);
  return stand_in;
}

c10::Storage StandIns::storage_of(const c10::Storage& original) {
  c10::Storage& known = storages_[original.unsafeGetStorageImpl()];
  if (known) return known;
  c10::Allocator* allocator = c10::GetAllocator(type_);
  if (type_ == c10::DeviceType::CPU) {
    c10::DataPtr bytes = allocator->allocate(original.nbytes());
    if (original.nbytes() != 0) std::memset(bytes.get(), 0, original.nbytes());
    known = c10::Storage(c10::Storage::use_byte_size_t(), original.nbytes(), std::move(bytes),
                         allocator, true);
  } else {
    known = c10::Storage(c10::Storage::use_byte_size_t(), original.nbytes(),
                         c10::DataPtr(nullptr, c10::Device(type_)), allocator, true);
  }
  return known;
}

}  // namespace rgpu::backend
