#include "torch_backend/ops/host_fold.h"

#include <ATen/EmptyTensor.h>

#include <cstring>
#include <optional>
#include <utility>

#include "torch_backend/device/storage.h"
#include "torch_backend/ops/kernel_scope.h"

namespace rgpu::backend {
namespace {

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

bool is_written(const OpInfo& op, size_t argument) {
  const c10::AliasInfo* alias = op.schema->arguments()[argument].alias_info();
  return alias != nullptr && alias->isWrite();
}

at::Tensor over(c10::Storage host, const at::Tensor& like) {
  const c10::TensorImpl& impl = *like.unsafeGetTensorImpl();
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(host), c10::DispatchKeySet(c10::DispatchKey::CPU), impl.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(impl.sizes(), impl.strides(),
                                                      impl.storage_offset());
  if (impl.is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// A call's arguments on the CPU, over the known bytes.
class HostArguments {
 public:
  explicit HostArguments(const OpInfo& op) : op_(op) {}

  // False when the value of one is not known.
  bool convert(const c10::IValue* arguments, torch::jit::Stack& converted) {
    converted.resize(op_.rules.size());
    // Targets last: memory is made for them.
    return convert_some(arguments, converted, false) && convert_some(arguments, converted, true);
  }
  // The call succeeded: what it gave all elements of is known from now on.
  void keep_target() {
    if (host_) HostValues::get().put(target_, std::move(host_));
  }

 private:
  bool convert_some(const c10::IValue* arguments, torch::jit::Stack& converted, bool written) {
    for (size_t i = 0; i < op_.rules.size(); ++i) {
      if (is_written(op_, i) != written) continue;
      std::optional<c10::IValue> value = written ? target(arguments[i]) : input(arguments[i]);
      if (!value.has_value()) return false;
      converted[i] = *std::move(value);
    }
    return true;
  }

  std::optional<c10::IValue> input(const c10::IValue& value) {
    if (value.isTensor() && is_ours(value.toTensor())) {
      at::Tensor known = host_view(value.toTensor());
      if (!known.defined()) return std::nullopt;
      return known;
    }
    if (value.isDevice()) return c10::IValue(c10::Device(c10::DeviceType::CPU));
    if (!value.isList()) return value;
    c10::impl::GenericList items(value.toList().elementType());
    for (const c10::IValue& item : value.toListRef()) {
      std::optional<c10::IValue> known = input(item);
      if (!known.has_value()) return std::nullopt;
      items.push_back(*std::move(known));
    }
    return items;
  }

  std::optional<c10::IValue> target(const c10::IValue& value) {
    if (!value.isTensor() || !is_ours(value.toTensor())) return std::nullopt;
    const at::Tensor& tensor = value.toTensor();
    if (!is_knowable(tensor)) return std::nullopt;
    if (at::Tensor known = host_view(tensor); known.defined()) return known;
    if (op_.fold == HostFold::kUpdates || !fills_storage(tensor)) return std::nullopt;
    target_ = storage_of(tensor);
    host_ = host_storage(target_->nbytes());
    return over(host_, tensor);
  }

  const OpInfo& op_;
  c10::StorageImpl* target_ = nullptr;
  c10::Storage host_;
};

void forget_written(const OpInfo& op, const c10::IValue* arguments) {
  for (size_t i = 0; i < op.rules.size(); ++i) {
    if (!is_written(op, i)) continue;
    const auto forget = [](const c10::IValue& value) {
      if (value.isTensor() && is_ours(value.toTensor()))
        HostValues::get().forget(storage_of(value.toTensor()));
    };
    if (!arguments[i].isList()) {
      forget(arguments[i]);
      continue;
    }
    for (const c10::IValue& item : arguments[i].toListRef()) forget(item);
  }
}

// The bytes of `value` laid out as planned.
c10::Storage as_planned(const TensorPlan& plan, const at::Tensor& value) {
  c10::Storage host = host_storage(plan.size_bytes);
  at::Tensor planned = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(host), c10::DispatchKeySet(c10::DispatchKey::CPU), plan.dtype);
  planned.unsafeGetTensorImpl()->set_sizes_and_strides(plan.sizes, plan.strides);
  planned.copy_(value);
  return host;
}

// x & 0, x * 0 and x | True are known whatever x is: that the length is reached decides whether a
// sequence is finished, and no token needs to be asked for it.
std::optional<bool> absorbed(const OpInfo& op, const TensorPlan& plan,
                             const c10::IValue* arguments) {
  const bool is_or = op.name == "aten::bitwise_or" || op.name == "aten::logical_or";
  const bool is_and =
      op.name == "aten::bitwise_and" || op.name == "aten::logical_and" || op.name == "aten::mul";
  if (!(is_and || (is_or && plan.dtype.toScalarType() == at::kBool))) return std::nullopt;
  for (size_t i = 0; i < 2 && i < op.rules.size(); ++i) {
    if (!arguments[i].isTensor() || !is_ours(arguments[i].toTensor())) continue;
    const at::Tensor known = host_view(arguments[i].toTensor());
    if (!known.defined() || known.numel() == 0) continue;
    if (is_or ? known.all().item<bool>() : !known.any().item<bool>()) return is_or;
  }
  return std::nullopt;
}

c10::Storage fill_planned(const TensorPlan& plan, bool value) {
  c10::Storage host = host_storage(plan.size_bytes);
  std::memset(host.mutable_data(), value ? 1 : 0, plan.size_bytes);  // Ones are bools only.
  return host;
}

// A program that reads `row[-1] == end` reads on in the row: then one wait is enough for all of it.
HostValues::Origins origins_of(const OpInfo& op, const c10::IValue* arguments) {
  HostValues::Origins origins;
  for (size_t i = 0; i < op.rules.size(); ++i) {
    if (!arguments[i].isTensor() || !is_ours(arguments[i].toTensor())) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    c10::StorageImpl* storage = storage_of(tensor);
    if (storage->nbytes() > kReadAheadBytesMax || !is_knowable(tensor)) continue;
    origins.emplace_back(tensor.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl());
  }
  return origins;
}

// Of a call whose inputs are not all known.
Folded fold_partly(const OpInfo& op, const TensorPlan& plan, const c10::IValue* arguments) {
  if (const std::optional<bool> value = absorbed(op, plan, arguments); value.has_value())
    return {fill_planned(plan, *value), {}};
  if (c10::multiply_integers(plan.sizes) != 1) return {};
  return {{}, origins_of(op, arguments)};
}

bool makes_knowable_tensor(const OpEntry& entry) {
  return !entry.replies && entry.returns.size() == 1 &&
         entry.returns[0].kind == ReturnPlan::Kind::kTensor && entry.tensors.size() == 1 &&
         entry.tensors[0].knowable;
}

}  // namespace

bool is_knowable(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  return is_knowable(storage) && HostValues::takes(tensor.scalar_type(), storage->nbytes());
}

c10::Storage host_storage(size_t size_bytes) {
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CPU);
  return {c10::Storage::use_byte_size_t(), size_bytes, allocator->allocate(size_bytes), allocator,
          /*resizable=*/false};
}

at::Tensor host_view(const at::Tensor& tensor) {
  c10::Storage host = HostValues::get().find(storage_of(tensor));
  if (!host) return {};
  return over(std::move(host), tensor);
}

bool fills_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         static_cast<size_t>(tensor.numel()) * tensor.element_size() ==
             storage_of(tensor)->nbytes();
}

Folded fold_on_host(const OpInfo& op, const OpEntry& entry, const torch::jit::Stack& stack) {
  const c10::IValue* arguments = stack.data() + (stack.size() - op.rules.size());
  const bool makes = makes_knowable_tensor(entry);
  if (op.fold != HostFold::kNone && (makes || op.writes)) {
    try {
      const KernelScope scope;
      HostArguments host(op);
      torch::jit::Stack call;
      if (host.convert(arguments, call)) {
        op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &call);
        host.keep_target();
        if (!makes) return {};
        return {as_planned(entry.tensors[0], call.back().toTensor()), {}};
      }
      if (makes && !op.writes) return fold_partly(op, entry.tensors[0], arguments);
    } catch (const c10::Error&) {  // The server will say it, with the program's line.
    }
  }
  if (op.writes) forget_written(op, arguments);
  return {};
}

void forget_known(const CallKey& key) {
  for (c10::StorageImpl* storage : key.knowable()) HostValues::get().forget(storage);
}

void Folded::note(const at::Tensor& result) && {
  if (known) {
    HostValues::get().put(storage_of(result), std::move(known));
  } else if (!origins.empty()) {
    HostValues::get().note_origins(storage_of(result), std::move(origins));
  }
}

}  // namespace rgpu::backend
