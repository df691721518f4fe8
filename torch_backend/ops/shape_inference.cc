#include "torch_backend/ops/shape_inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/host_values.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/ops/argument_checks.h"
#include "torch_backend/ops/cpu_verdict.h"
#include "torch_backend/ops/kernel_scope.h"
#include "torch_backend/ops/result_layout.h"
#include "torch_backend/ops/shape_rules.h"
#include "torch_backend/ops/sparse_tensor.h"
#include "torch_backend/ops/stand_ins.h"

namespace rgpu::backend {
// Results beside the first that are one thing on Meta and another on some device: batch norm's
// saved statistics in eval mode, the dtype of a norm's statistics, what embedding_bag keeps for its
// backward.
bool is_device_dependent(const std::string& op, size_t result) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update",
       "aten::_batch_norm_no_update", "aten::_native_batch_norm_legit_functional",
       "aten::_batch_norm_with_update_functional", "aten::_native_batch_norm_legit_no_training",
       "aten::_embedding_bag", "aten::native_layer_norm", "aten::native_group_norm",
       "aten::_embedding_bag_forward_only"});
  return result > 0 && std::find(kNames.begin(), kNames.end(), op) != kNames.end();
}

namespace {

wire::TensorMeta meta_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  wire::TensorMeta meta;
  meta.dtype = static_cast<int8_t>(tensor.scalar_type());
  if (impl.storage_offset() != 0) meta.flags |= wire::TensorMeta::kHasOffset;
  if (impl.is_conj()) meta.flags |= wire::TensorMeta::kConj;
  if (impl.is_neg()) meta.flags |= wire::TensorMeta::kNeg;
  if (impl.is_wrapped_number()) meta.flags |= wire::TensorMeta::kWrappedNumber;
  meta.sizes = impl.sizes().vec();
  meta.strides = impl.strides().vec();
  return meta;
}

wire::Arg describe_sparse(const at::Tensor& tensor) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kSparse;
  arg.tensor.dtype = static_cast<int8_t>(tensor.scalar_type());
  arg.tensor.sizes = tensor.sizes().vec();
  arg.tensor.strides.assign(arg.tensor.sizes.size(), 0);
  arg.integers = form_of(tensor);
  for (const at::Tensor& part : components_of(tensor)) arg.items.push_back(describe_tensor(part));
  return arg;
}

wire::Arg describe_number(const c10::IValue& value, bool immediate) {
  wire::Arg arg;
  if (value.isInt()) {
    arg.kind = immediate ? wire::ArgKind::kScalarInt : wire::ArgKind::kInt;
    if (!immediate) arg.integer = value.toInt();
  } else if (value.isBool()) {
    arg.kind = immediate ? wire::ArgKind::kScalarBool : wire::ArgKind::kBool;
    if (!immediate) arg.integer = value.toBool() ? 1 : 0;
  } else if (value.isDouble()) {
    arg.kind = immediate ? wire::ArgKind::kScalarDouble : wire::ArgKind::kDouble;
    if (!immediate) arg.real = value.toDouble();
  } else {
    const c10::complex<double> number = value.toComplexDouble();
    arg.kind = immediate ? wire::ArgKind::kScalarComplex : wire::ArgKind::kComplex;
    if (!immediate) arg.reals = {number.real(), number.imag()};
  }
  return arg;
}

wire::ArgKind list_kind(const c10::Type& type, bool immediate) {
  if (immediate) return wire::ArgKind::kScalarList;
  const auto* list = type.castRaw<c10::ListType>();
  c10::TypeKind element = list == nullptr ? c10::TypeKind::IntType : list->getElementType()->kind();
  switch (element) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::OptionalType:
      return wire::ArgKind::kTensorList;
    case c10::TypeKind::FloatType:
      return wire::ArgKind::kDoubleList;
    case c10::TypeKind::BoolType:
      return wire::ArgKind::kBoolList;
    default:
      return wire::ArgKind::kIntList;
  }
}

wire::Arg describe_list(const c10::IValue& value, const c10::TypePtr& declared, bool immediate) {
  const auto* optional = declared->castRaw<c10::OptionalType>();
  const c10::TypePtr& type = optional == nullptr ? declared : optional->getElementType();
  wire::Arg arg;
  arg.kind = list_kind(*type, immediate);
  for (const c10::IValue& item : value.toListRef()) {
    switch (arg.kind) {
      case wire::ArgKind::kTensorList:
        arg.items.push_back(item.isTensor() ? describe_tensor(item.toTensor()) : wire::Arg{});
        break;
      case wire::ArgKind::kScalarList:
        arg.items.push_back(describe_number(item, true));
        break;
      case wire::ArgKind::kDoubleList:
        arg.reals.push_back(item.toDouble());
        break;
      case wire::ArgKind::kBoolList:
        arg.integers.push_back(item.toBool() ? 1 : 0);
        break;
      default:
        arg.integers.push_back(item.toInt());
    }
  }
  return arg;
}

wire::Arg describe(const c10::IValue& value, const c10::Argument& argument, bool immediate) {
  wire::Arg arg;
  if (value.isNone() || value.isGenerator()) return arg;
  if (value.isTensor()) return describe_tensor(value.toTensor());
  if (value.isList()) return describe_list(value, argument.real_type(), immediate);
  if (value.isString()) {
    arg.kind = wire::ArgKind::kString;
    arg.text = value.toStringRef();
    return arg;
  }
  if (value.isDevice()) {
    arg.kind = wire::ArgKind::kDevice;
    arg.integer = or_current(value.toDevice().index());
    return arg;
  }
  return describe_number(value, immediate);
}

// Whether the exception in flight says that no shape function can answer.
bool is_unimplemented(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::NotImplementedError&) {
    return true;
  } catch (...) {
    return Client::hooks().is_unimplemented(error);
  }
}

void add_tensor_result(OpEntry& entry, const at::Tensor& meta, size_t result) {
  TensorPlan plan;
  plan.defined = meta.defined();
  if (plan.defined) plan = plan_of(meta.sizes(), meta.strides(), meta.scalar_type());
  wire::Output output = promise_of(plan);
  if (plan.defined && is_device_dependent(entry.op->name, result))
    output.kind = wire::OutputKind::kOpaque;
  entry.tensors.push_back(std::move(plan));
  entry.description.outputs.push_back(std::move(output));
}

void add_alias(OpEntry& entry, size_t argument) {
  entry.returns.push_back(
      {ReturnPlan::Kind::kArgument, static_cast<uint32_t>(argument), 0, {}, {}});
  entry.description.outputs.push_back({wire::OutputKind::kAlias, {}});
}

// Results whose geometry Meta gave.
void add_results(OpEntry& entry, const torch::jit::Stack& results) {
  const OpInfo& op = *entry.op;
  for (size_t r = 0; r < op.alias_of.size(); ++r) {
    const c10::IValue& value = results[results.size() - op.alias_of.size() + r];
    if (op.alias_of[r] >= 0) {
      add_alias(entry, static_cast<size_t>(op.alias_of[r]));
    } else if (value.isTensor()) {
      entry.returns.push_back(
          {ReturnPlan::Kind::kTensor, static_cast<uint32_t>(entry.tensors.size()), 1, {}, {}});
      add_tensor_result(entry, value.toTensor(), r);
    } else if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      entry.returns.push_back({ReturnPlan::Kind::kTensorList,
                               static_cast<uint32_t>(entry.tensors.size()),
                               static_cast<uint32_t>(list.size()),
                               {},
                               {}});
      for (const at::Tensor& tensor : list) add_tensor_result(entry, tensor, r);
    } else {
      entry.returns.push_back({ReturnPlan::Kind::kConstant, 0, 0, value, {}});
    }
  }
}

// A list of as many tensors as the server says, up to this: what is last in the record's handles
// may stay unbound.
void add_unknown_list(OpEntry& entry) {
  constexpr uint32_t kLengthMax = 64;
  entry.replies = true;
  entry.returns.push_back({ReturnPlan::Kind::kTensorList,
                           static_cast<uint32_t>(entry.tensors.size()),
                           kLengthMax,
                           {},
                           {}});
  entry.tensors.resize(entry.tensors.size() + kLengthMax);
  entry.description.outputs.resize(entry.description.outputs.size() + kLengthMax,
                                   {wire::OutputKind::kUnknown, {}});
}

// Results that only the server can tell.
void add_unknown_results(OpEntry& entry) {
  const OpInfo& op = *entry.op;
  for (size_t r = 0; r < op.alias_of.size(); ++r) {
    const c10::TypePtr& type = op.schema->returns()[r].type();
    if (op.alias_of[r] >= 0) {
      add_alias(entry, static_cast<size_t>(op.alias_of[r]));
    } else if (type->kind() == c10::TypeKind::TensorType) {
      entry.replies = true;
      entry.returns.push_back(
          {ReturnPlan::Kind::kTensor, static_cast<uint32_t>(entry.tensors.size()), 1, {}, {}});
      entry.tensors.emplace_back();
      entry.description.outputs.push_back({wire::OutputKind::kUnknown, {}});
    } else if (type->isSubtypeOf(*c10::ListType::ofTensors()) && r + 1 == op.alias_of.size()) {
      add_unknown_list(entry);
    } else {
      TORCH_CHECK_NOT_IMPLEMENTED(type->kind() != c10::TypeKind::ListType, "rgpu: ", op.name,
                                  " returns a list whose length only the server knows");
      entry.replies = true;
      entry.returns.push_back({ReturnPlan::Kind::kConstant, 0, 0, {}, {}});
    }
  }
}

// These take any out= of as many elements, whatever its shape.
bool is_sized_by_count(const OpInfo& op) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"aten::arange", "aten::linspace", "aten::logspace", "aten::range"});
  return std::find(kNames.begin(), kNames.end(), op.name) != kNames.end();
}

// Arguments that the Meta kernel resized: the caller must do the same before the op is sent.
void note_resizes(OpEntry& entry, const c10::IValue* arguments, const c10::IValue* metas) {
  const OpInfo& op = *entry.op;
  for (size_t i = 0; i < op.rules.size(); ++i) {
    const c10::AliasInfo* info = op.schema->arguments()[i].alias_info();
    if (info == nullptr || !info->isWrite() || !arguments[i].isTensor()) continue;
    const at::Tensor& before = arguments[i].toTensor();
    const at::Tensor& after = metas[i].toTensor();
    if (!before.defined() || before.sizes() == after.sizes()) continue;
    if (!op.schema->arguments()[i].is_out()) {
      // PyTorch's Python shape functions would let an op in place broadcast what it changes.
      (void)cpu_takes(op, arguments);
      TORCH_CHECK(false, "output with shape ", before.sizes(),
                  " doesn't match the broadcast shape ", after.sizes());
    }
    if (is_sized_by_count(op) && before.numel() == after.numel()) continue;
    entry.resizes.push_back({static_cast<uint32_t>(i), after.sizes().vec(), after.strides().vec()});
  }
}

// Whether the Meta kernel resized a tensor of an out= list.
bool resized_a_list(const OpInfo& op, const c10::IValue* arguments, const c10::IValue* metas) {
  for (size_t i = 0; i < op.rules.size(); ++i) {
    if (!op.schema->arguments()[i].is_out() || !arguments[i].isTensorList()) continue;
    const auto before = arguments[i].toListRef();
    const auto after = metas[i].toListRef();
    for (size_t t = 0; t < before.size(); ++t) {
      if (before[t].toTensor().sizes() != after[t].toTensor().sizes()) return true;
    }
  }
  return false;
}

struct CallDevices {
  std::optional<c10::DeviceIndex> first;  // Of the first tensor, else of the device argument.
  std::optional<c10::DeviceIndex> other;  // Of a tensor that is elsewhere.
};

CallDevices devices_of(const OpInfo& op, const torch::jit::Stack& stack) {
  CallDevices found;
  std::optional<c10::DeviceIndex> argument;
  const auto add = [&](const c10::IValue& value) {
    if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      argument = or_current(value.toDevice().index());
    }
    if (!value.isTensor() || !value.toTensor().defined()) return;
    const c10::Device device = value.toTensor().device();
    if (device.type() != kDeviceType) return;
    if (!found.first) found.first = device.index();
    if (*found.first != device.index()) found.other = device.index();
  };
  for (size_t i = stack.size() - op.rules.size(); i < stack.size(); ++i) {
    add(stack[i]);
    if (!stack[i].isList()) continue;
    for (const c10::IValue& item : stack[i].toListRef()) add(item);
  }
  if (!found.first) found.first = argument;
  return found;
}

// x[mask]: as many results as the mask has true elements.
bool selects_by_mask(const OpInfo& op, const c10::IValue* arguments) {
  if (op.name != "aten::index") return false;
  const auto items = arguments[1].toListRef();
  return std::any_of(items.begin(), items.end(), [](const c10::IValue& item) {
    if (!item.isTensor() || !item.toTensor().defined()) return false;
    const at::ScalarType dtype = item.toTensor().scalar_type();
    return dtype == at::kBool || dtype == at::kByte;
  });
}

// Where PyTorch's shape functions are wrong.
void correct(const OpInfo& op, const c10::IValue* arguments, torch::jit::Stack& results) {
  if (op.name == "aten::multilabel_margin_loss_forward" && op.overload.empty()) {
    const at::Tensor& self = arguments[0].toTensor();
    constexpr int64_t kNoReduction = 0;
    // One sample has one loss, without a dimension.
    if (self.dim() <= 1 && arguments[2].toInt() == kNoReduction) {
      results[0] = at::empty_strided({}, {}, results[0].toTensor().options());
    }
  } else if (op.name == "aten::_native_multi_head_attention" && op.overload.empty()) {
    constexpr size_t kNeedWeights = 10;
    if (!arguments[kNeedWeights].toBool()) results[1] = at::Tensor();
  }
}

// What the Meta key says of the call; false where it cannot say anything.
bool ask_shape_function(OpEntry& entry, const c10::IValue* arguments, const c10::IValue* seen) {
  const OpInfo& op = *entry.op;
  StandIns meta(c10::DeviceType::Meta);
  torch::jit::Stack metas;
  for (size_t i = 0; i < op.rules.size(); ++i) metas.push_back(meta.convert(seen[i]));
  torch::jit::Stack results = metas;
  const KernelScope scope;
  // A resized out= is warned of once, where it is resized.
  const std::shared_ptr<void> quiet = Client::hooks().quiet(/*warnings=*/op.has_out);
  std::optional<NoWarnings> no_warnings;
  if (op.has_out) no_warnings.emplace();
  try {
    if (const ShapeRule rule = shape_rule_of(op.name)) {
      rule(results);
    } else {
      op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
    }
  } catch (...) {
    const std::exception_ptr refusal = std::current_exception();
    if (is_unimplemented(refusal) || cpu_takes(op, arguments)) return false;
    std::rethrow_exception(refusal);
  }
  correct(op, arguments, results);
  if (resized_a_list(op, arguments, metas.data())) return false;
  note_resizes(entry, arguments, metas.data());
  choose_layout(op, arguments, results);
  add_results(entry, results);
  return true;
}

}  // namespace

c10::DeviceIndex device_of_call(const OpInfo& op, const torch::jit::Stack& stack) {
  const CallDevices devices = devices_of(op, stack);
  // A copy runs on the device it goes to, which is the first.
  TORCH_CHECK(!devices.other || op.name == "aten::copy_",
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::Device(kDeviceType, *devices.first), " and ",
              c10::Device(kDeviceType, devices.other.value_or(0)),
              "! (when checking an argument of ", op.name, ")");
  return devices.first.value_or(current_device());
}

bool goes_tensor_by_tensor(const OpInfo& op, const torch::jit::Stack& stack) {
  return op.name.starts_with("aten::_foreach_") && devices_of(op, stack).other.has_value();
}

wire::Arg describe_tensor(const at::Tensor& tensor) {
  wire::Arg arg;
  if (!tensor.defined()) return arg;
  if (is_sparse(tensor)) return describe_sparse(tensor);
  arg.tensor = meta_of(tensor);
  const bool ours = tensor.device().type() == kDeviceType;
  arg.kind = ours ? wire::ArgKind::kTensor : wire::ArgKind::kHostScalar;
  if (!ours) arg.tensor.flags &= static_cast<uint8_t>(~wire::TensorMeta::kHasOffset);
  return arg;
}

TensorPlan plan_of(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  TensorPlan plan;
  plan.dtype = c10::scalarTypeToTypeMeta(dtype);
  plan.sizes = sizes.vec();
  plan.strides = strides.vec();
  plan.size_bytes = at::detail::computeStorageNbytes(sizes, strides, plan.dtype.itemsize());
  plan.knowable = HostValues::takes(dtype, plan.size_bytes);
  plan.contiguous = c10::IntArrayRef(c10::contiguous_strides(sizes)) == strides;
  return plan;
}

wire::Output promise_of(const TensorPlan& plan) {
  wire::Output output;
  output.kind = plan.defined ? wire::OutputKind::kNew : wire::OutputKind::kNone;
  if (plan.defined) {
    output.meta.dtype = static_cast<int8_t>(plan.dtype.toScalarType());
    output.meta.sizes = plan.sizes;
    output.meta.strides = plan.strides;
  }
  return output;
}

wire::Arg describe_constant(const c10::IValue& value, const c10::Argument& argument) {
  if (!value.isList()) return describe(value, argument, /*immediate=*/false);
  const auto items = value.toListRef();
  const bool has_reals =
      std::any_of(items.begin(), items.end(), [](const c10::IValue& v) { return v.isDouble(); });
  if (!has_reals) return describe(value, argument, /*immediate=*/false);
  wire::Arg arg;  // Of a Scalar[] as well, whose items are integers or floats.
  arg.kind = wire::ArgKind::kDoubleList;
  for (const c10::IValue& item : items) arg.reals.push_back(item.toScalar().toDouble());
  return arg;
}

wire::OpTemplate describe_arguments(const OpInfo& op, const torch::jit::Stack& stack) {
  wire::OpTemplate description;
  description.name = op.name;
  description.overload = op.overload;
  description.schema_hash = op.schema_hash;
  description.random = op.random;
  description.default_dtype = static_cast<int8_t>(c10::get_default_dtype_as_scalartype());
  const size_t count = op.rules.size();
  const c10::IValue* arguments = stack.data() + (stack.size() - count);
  for (size_t i = 0; i < count; ++i) {
    description.args.push_back(
        describe(arguments[i], op.schema->arguments()[i], op.rules[i] == ArgRule::kImmediate));
  }
  return description;
}

void finish_entry(OpEntry& entry) {
  entry.description.replies = entry.replies;
  entry.new_handle_count = entry.description.new_handle_count();
  for (const TensorPlan& plan : entry.tensors) {
    entry.random_reserve = std::max(entry.random_reserve, c10::multiply_integers(plan.sizes));
  }
  raise_if_error(wire::check_op_template(entry.description).with_context(entry.op->name));
  entry.encoded = wire::encode_op_template(entry.description);
}

std::unique_ptr<OpEntry> infer(const OpInfo& op, const torch::jit::Stack& stack,
                               const torch::jit::Stack* meta_stack) {
  auto entry = std::make_unique<OpEntry>();
  entry->op = &op;
  entry->device = device_of_call(op, stack);
  entry->description = describe_arguments(op, stack);
  const size_t count = op.rules.size();
  const c10::IValue* arguments = stack.data() + (stack.size() - count);
  check_arguments(op, arguments);
  const c10::IValue* seen =
      meta_stack == nullptr ? arguments : meta_stack->data() + (meta_stack->size() - count);
  const bool known = !op.asks_server && !selects_by_mask(op, arguments) &&
                     ask_shape_function(*entry, arguments, seen);
  if (!known) add_unknown_results(*entry);
  entry->out_unknown = !known && op.has_out;
  finish_entry(*entry);
  return entry;
}

}  // namespace rgpu::backend
