#include "torch_backend/ops/call_key.h"

#include <ATen/core/Generator.h>

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "torch_backend/device/storage.h"
#include "wire/op_template.h"

namespace rgpu::backend {
namespace {

uint64_t tagged(KeyTag tag, uint64_t rest = 0) { return static_cast<uint64_t>(tag) | (rest << 8); }

// tag | dtype | dims | flags | alias | device, a byte each.
uint64_t tensor_word(KeyTag tag, const c10::TensorImpl& tensor, uint64_t alias) {
  uint64_t flags = 0;
  if (tensor.storage_offset() != 0) flags |= wire::TensorMeta::kHasOffset;
  if (tensor.is_conj()) flags |= wire::TensorMeta::kConj;
  if (tensor.is_neg()) flags |= wire::TensorMeta::kNeg;
  if (tensor.is_wrapped_number()) flags |= wire::TensorMeta::kWrappedNumber;
  const auto dtype = static_cast<uint64_t>(c10::typeMetaToScalarType(tensor.dtype()));
  return tagged(tag,
                dtype | (static_cast<uint64_t>(tensor.dim()) << 8) | (flags << 16) | (alias << 24) |
                    (static_cast<uint64_t>(static_cast<uint8_t>(tensor.device().index())) << 32));
}

[[noreturn]] void raise_other_device(const OpInfo& op, const at::Tensor& tensor) {
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              "rgpu and ", tensor.device(), "! (when checking an argument of ", op.name,
              "; move it with .to(\"rgpu\"))");
}

}  // namespace

void CallKey::build(const OpInfo& op, const torch::jit::Stack& stack, uint64_t context_bits) {
  words_.clear();
  handles_.clear();
  immediates_.clear();
  fresh_.clear();
  knowable_.clear();
  storage_count_ = 0;
  generator_ = nullptr;
  numel_max_ = 0;
  words_.push_back(reinterpret_cast<uint64_t>(op.schema));
  words_.push_back(context_bits);
  const size_t count = op.rules.size();
  const c10::IValue* arguments = stack.data() + (stack.size() - count);
  for (size_t i = 0; i < count; ++i) {
    if (arguments[i].isTensor()) {
      add_tensor(arguments[i].toTensor(), op);
    } else {
      add_value(arguments[i], op.rules[i] == ArgRule::kImmediate, op);
    }
  }
}

uint64_t CallKey::hash() const noexcept {
  return XXH3_64bits(words_.data(), words_.size() * sizeof(uint64_t));
}

uint64_t CallKey::alias_index(const c10::StorageImpl* storage) {
  for (size_t i = 0; i < storage_count_; ++i) {
    if (storages_[i] == storage) return i + 1;
  }
  if (storage_count_ < storages_.size()) storages_[storage_count_++] = storage;
  return 0;
}

void CallKey::add_tensor(const at::Tensor& tensor, const OpInfo& op) {
  if (!tensor.defined()) {
    words_.push_back(tagged(KeyTag::kUndefined));
    return;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.device_type() != kDeviceType) {
    add_host_scalar(tensor, op);
    return;
  }
  c10::StorageImpl* storage = impl.unsafe_storage().unsafeGetStorageImpl();
  words_.push_back(tensor_word(KeyTag::kTensor, impl, alias_index(storage)));
  const c10::IntArrayRef sizes = impl.sizes();
  const c10::IntArrayRef strides = impl.strides();
  const size_t at = words_.size();
  words_.resize(at + 2 * sizes.size());
  std::memcpy(words_.data() + at, sizes.data(), sizes.size() * sizeof(int64_t));
  std::memcpy(words_.data() + at + sizes.size(), strides.data(), sizes.size() * sizeof(int64_t));
  const StorageName name = checked_name(storage);
  handles_.push_back(name.handle);
  if (name.fresh) fresh_.push_back(storage);
  if (name.knowable) [[unlikely]]
    knowable_.push_back(storage);
  if (const int64_t offset = impl.storage_offset(); offset != 0) add_immediate(&offset, 8);
  numel_max_ = std::max(numel_max_, impl.numel());
}

void CallKey::add_host_scalar(const at::Tensor& tensor, const OpInfo& op) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.device_type() != c10::DeviceType::CPU || impl.dim() != 0 ||
      impl.layout() != at::kStrided) {
    raise_other_device(op, tensor);
  }
  words_.push_back(tensor_word(KeyTag::kHostScalar, impl, 0) & ~(uint64_t{1} << 24));
  std::array<std::byte, 16> value{};
  std::memcpy(value.data(), tensor.const_data_ptr(), tensor.element_size());
  add_immediate(value.data(), value.size());
}

void CallKey::add_immediate(const void* bytes, size_t size_bytes) {
  const auto* first = static_cast<const std::byte*>(bytes);
  immediates_.insert(immediates_.end(), first, first + size_bytes);
}

void CallKey::append_handles(wire::Handle first, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) handles_.push_back(first + i);
}

void CallKey::add_string(const std::string& text) {
  words_.push_back(tagged(KeyTag::kString, text.size()));
  const size_t at = words_.size();
  words_.resize(at + (text.size() + 7) / 8, 0);
  std::memcpy(words_.data() + at, text.data(), text.size());
}

void CallKey::add_value(const c10::IValue& value, bool immediate, const OpInfo& op) {
  if (value.isNone()) {
    words_.push_back(tagged(KeyTag::kNone));
  } else if (value.isTensor()) {
    add_tensor(value.toTensor(), op);
  } else if (value.isInt()) {
    const int64_t number = value.toInt();
    words_.push_back(tagged(KeyTag::kInt, immediate));
    immediate ? add_immediate(&number, 8) : words_.push_back(static_cast<uint64_t>(number));
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    words_.push_back(tagged(KeyTag::kDouble, immediate));
    immediate ? add_immediate(&number, 8) : words_.push_back(std::bit_cast<uint64_t>(number));
  } else if (value.isBool()) {
    const int64_t number = value.toBool() ? 1 : 0;
    words_.push_back(tagged(KeyTag::kBool, immediate ? 2 : static_cast<uint64_t>(number)));
    if (immediate) add_immediate(&number, 8);
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> items = value.toListRef();
    words_.push_back(tagged(KeyTag::kList, items.size()));
    for (const c10::IValue& item : items) add_value(item, immediate, op);
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    words_.push_back(tagged(KeyTag::kComplex, immediate));
    if (immediate) {
      add_immediate(&number, 16);
    } else {
      words_.push_back(std::bit_cast<uint64_t>(number.real()));
      words_.push_back(std::bit_cast<uint64_t>(number.imag()));
    }
  } else if (value.isString()) {
    add_string(value.toStringRef());
  } else if (value.isDevice()) {
    const c10::Device device = value.toDevice();
    words_.push_back(tagged(KeyTag::kDevice, (static_cast<uint64_t>(device.type()) << 8) |
                                                 static_cast<uint8_t>(device.index())));
  } else if (value.isGenerator()) {
    words_.push_back(tagged(KeyTag::kGenerator));
    generator_ = nullptr;
    static thread_local at::Generator held;
    held = value.toGenerator();
    TORCH_CHECK(held.device().type() == kDeviceType,
                "Expected a 'rgpu' device type for generator but found '", held.device(), "'");
    generator_ = &held;
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "rgpu: an argument of ", op.name, " is a ", value.tagKind(),
                                ", which cannot be sent to a server");
  }
}

}  // namespace rgpu::backend
