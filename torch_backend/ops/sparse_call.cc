#include "torch_backend/ops/sparse_call.h"

#include <ATen/ops/result_type.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "torch_backend/device/client.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/ops/host_fold.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/shape_inference.h"
#include "torch_backend/ops/sparse_tensor.h"

namespace rgpu::backend {
namespace {

constexpr uint32_t kNoArgument = std::numeric_limits<uint32_t>::max();

// ---- The key ------------------------------------------------------------------------------------

// A sparse tensor as a list of what decides the call: no schema has a list in that place.
c10::IValue flattened(const c10::IValue& value) {
  if (value.isTensor() && is_sparse(value.toTensor())) {
    const at::Tensor& tensor = value.toTensor();
    TORCH_CHECK(tensor.device().type() == kDeviceType,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                "rgpu and ", tensor.device(), "! (move it with .to(\"rgpu\"))");
    c10::impl::GenericList parts(c10::AnyType::get());
    parts.push_back(c10::List<int64_t>(form_of(tensor)));
    parts.push_back(c10::List<int64_t>(tensor.sizes().vec()));
    for (const at::Tensor& component : components_of(tensor)) parts.push_back(component);
    return parts;
  }
  if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
  c10::impl::GenericList items(c10::AnyType::get());
  for (const c10::IValue& item : value.toListRef()) items.push_back(flattened(item));
  return items;
}

torch::jit::Stack flattened(const OpInfo& op, const torch::jit::Stack& stack) {
  torch::jit::Stack flat;
  flat.reserve(op.rules.size());
  for (size_t i = stack.size() - op.rules.size(); i < stack.size(); ++i) {
    flat.push_back(flattened(stack[i]));
  }
  return flat;
}

// ---- What is known of the results ---------------------------------------------------------------

bool is_dense(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && !is_sparse(value.toTensor());
}

bool writes_dense_arguments_alone(const OpInfo& op, const c10::IValue* arguments) {
  return !op.alias_of.empty() &&
         std::all_of(op.alias_of.begin(), op.alias_of.end(), [&](int32_t argument) {
           return argument >= 0 && is_dense(arguments[argument]);
         });
}

// Where both are dense they would broadcast, so that shape inference does not find this.
void refuse_sums_of_other_sizes(const OpInfo& op, const c10::IValue* arguments) {
  constexpr auto kSums =
      std::to_array<std::string_view>({"aten::add", "aten::add_", "aten::sub", "aten::sub_"});
  if (std::find(kSums.begin(), kSums.end(), op.name) == kSums.end()) return;
  if (!is_dense(arguments[0]) || !arguments[1].isTensor()) return;
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& other = arguments[1].toTensor();
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected 'self' and 'other' to have same size, but self has size ",
              self.sizes(), " while other has size ", other.sizes(),
              " (FYI: op2-sparse addition does not currently support broadcasting)");
}

// Whether every result is dense and has the geometry that the op gives dense arguments of the same
// sizes.
bool gives_dense(const OpInfo& op, const c10::IValue* arguments) {
  constexpr auto kProducts = std::to_array<std::string_view>({"aten::mm", "aten::bmm", "aten::mv"});
  constexpr auto kLikeTheFirst = std::to_array<std::string_view>(
      {"aten::add", "aten::sub", "aten::addmm", "aten::addmv", "aten::baddbmm"});
  if (writes_dense_arguments_alone(op, arguments)) return true;
  const auto names = [&](const auto& list) {
    return std::find(list.begin(), list.end(), op.name) != list.end();
  };
  if (names(kProducts)) return is_dense(arguments[0]) || is_dense(arguments[1]);
  return names(kLikeTheFirst) && is_dense(arguments[0]);
}

void add_dense_result(OpEntry& entry, TensorPlan plan) {
  entry.returns.push_back({ReturnPlan::Kind::kTensor, 0, 1, {}, {}});
  entry.description.outputs.push_back(promise_of(plan));
  entry.tensors.push_back(std::move(plan));
}

// _to_dense has no shape function, for there is no such op of dense tensors.
TensorPlan plan_to_dense(const c10::IValue* arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::ScalarType dtype =
      arguments[1].isNone() ? self.scalar_type() : arguments[1].toScalarType();
  return plan_of(self.sizes(), c10::contiguous_strides(self.sizes()), dtype);
}

struct PatternRule {
  std::string_view op;
  uint32_t argument;
};

// Whether the call is sound as far as its shapes go. What is not raises at once where the server is
// asked, so these rules leave it alone.
bool has_sound_shapes(const PatternRule& rule, const c10::IValue* arguments) {
  const at::Tensor& pattern = arguments[rule.argument].toTensor();
  if (rule.op == "aten::_sparse_softmax" || rule.op == "aten::_sparse_log_softmax") {
    const int64_t dim = arguments[1].toInt();
    return dim >= 0 && dim < pattern.dim() && !arguments[2].toBool();
  }
  if (rule.op == "aten::_sparse_sum_backward") {
    const at::Tensor& gradient = arguments[0].toTensor();
    return !is_sparse(gradient) || (gradient.is_sparse() && gradient._nnz() != 0);
  }
  if (rule.op == "aten::sparse_sampled_addmm") {
    if (!is_dense(arguments[1]) || !is_dense(arguments[2])) return false;
    const at::Tensor& left = arguments[1].toTensor();
    const at::Tensor& right = arguments[2].toTensor();
    return pattern.dim() == 2 && left.dim() == 2 && right.dim() == 2 &&
           left.size(1) == right.size(0) && left.size(0) == pattern.size(0) &&
           right.size(1) == pattern.size(1) && left.scalar_type() == pattern.scalar_type() &&
           right.scalar_type() == pattern.scalar_type();
  }
  // Of two sparse tensors the result has what they have in common.
  const c10::IValue& other = arguments[1 - rule.argument];
  return is_dense(other) && other.toTensor().sizes() == pattern.sizes();
}

// The argument whose indices the one result has, dtype and values aside; kNoArgument if unknown.
uint32_t pattern_of(const OpInfo& op, const c10::IValue* arguments) {
  // COO kernels coalesce what they get, so the argument must be coalesced.
  constexpr auto kRules = std::to_array<PatternRule>({{"aten::sparse_sampled_addmm", 0},
                                                      {"aten::_sparse_softmax", 0},
                                                      {"aten::_sparse_log_softmax", 0},
                                                      {"aten::_sparse_sum_backward", 1},
                                                      {"aten::sparse_mask", 1},
                                                      {"aten::mul", 0},
                                                      {"aten::mul", 1}});
  const auto is_pattern = [&](const PatternRule& rule) {
    if (rule.op != op.name || !arguments[rule.argument].isTensor()) return false;
    const at::Tensor& tensor = arguments[rule.argument].toTensor();
    if (!is_sparse(tensor) || (tensor.is_sparse() && !tensor.is_coalesced())) return false;
    return has_sound_shapes(rule, arguments);
  };
  const bool is_plain = op.alias_of.size() == 1 && op.alias_of[0] < 0;
  const auto rule = std::find_if(kRules.begin(), kRules.end(), is_pattern);
  return is_plain && rule != kRules.end() ? rule->argument : kNoArgument;
}

void add_sparse_result(OpEntry& entry, SparsePlan plan, std::vector<TensorPlan> parts) {
  entry.returns.push_back({ReturnPlan::Kind::kSparse,
                           0,
                           static_cast<uint32_t>(parts.size()),
                           {},
                           std::make_shared<const SparsePlan>(std::move(plan))});
  for (TensorPlan& part : parts) {
    entry.description.outputs.push_back(promise_of(part));
    entry.tensors.push_back(std::move(part));
  }
}

void add_patterned_result(OpEntry& entry, const c10::IValue* arguments, uint32_t argument) {
  const at::Tensor& pattern = arguments[argument].toTensor();
  const std::vector<at::Tensor> parts = components_of(pattern);
  at::ScalarType dtype = pattern.scalar_type();
  if (entry.op->name == "aten::sparse_mask" || entry.op->name == "aten::_sparse_sum_backward") {
    dtype = arguments[0].toTensor().scalar_type();
  } else if (entry.op->name == "aten::mul") {
    dtype = at::result_type(arguments[0].toTensor(), arguments[1].toTensor());
  }
  // Its indices stay the argument's.
  entry.description.outputs.assign(parts.size() - 1, {wire::OutputKind::kAlias, {}});
  const at::IntArrayRef sizes = parts.back().sizes();
  add_sparse_result(entry, {form_of(pattern), pattern.sizes().vec(), argument},
                    {plan_of(sizes, c10::contiguous_strides(sizes), dtype)});
}

// The gradient of an embedding bag's weight has a row for every index.
bool is_bag_without_padding(const OpInfo& op, const c10::IValue* arguments) {
  return op.name == "aten::_embedding_bag_backward" && arguments[11].toInt() < 0;
}

void add_bag_gradient(OpEntry& entry, const c10::IValue* arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  const int64_t rows = arguments[1].toTensor().numel();
  const int64_t dim = gradient.size(-1);
  const std::vector<int64_t> form = {static_cast<int64_t>(at::kSparse), 0};
  add_sparse_result(entry, {form, {arguments[6].toInt(), dim}, 0},
                    {plan_of({1, rows}, {rows, 1}, at::kLong),
                     plan_of({rows, dim}, {dim, 1}, gradient.scalar_type())});
}

void add_asked_results(OpEntry& entry, const c10::IValue* arguments) {
  const OpInfo& op = *entry.op;
  for (size_t r = 0; r < op.alias_of.size(); ++r) {
    const bool is_argument = op.alias_of[r] >= 0;
    const uint32_t argument = is_argument ? static_cast<uint32_t>(op.alias_of[r]) : kNoArgument;
    const c10::TypeKind kind = op.schema->returns()[r].type()->kind();
    if (is_argument && is_dense(arguments[argument])) {
      entry.returns.push_back({ReturnPlan::Kind::kArgument, argument, 0, {}, {}});
      entry.description.outputs.push_back({wire::OutputKind::kAlias, {}});
      continue;
    }
    entry.replies = true;
    TORCH_CHECK_NOT_IMPLEMENTED(kind != c10::TypeKind::ListType, "rgpu: ", op.name,
                                " of a sparse tensor returns a list of unknown length");
    if (kind != c10::TypeKind::TensorType) {
      entry.returns.push_back({ReturnPlan::Kind::kConstant, 0, 0, {}, {}});
      continue;
    }
    entry.returns.push_back({ReturnPlan::Kind::kAnyLayout, argument, 1, {}, {}});
    entry.description.outputs.push_back({wire::OutputKind::kAnyLayout, {}});
  }
}

std::unique_ptr<OpEntry> learn(const OpInfo& op, const torch::jit::Stack& stack) {
  const c10::IValue* arguments = stack.data() + (stack.size() - op.rules.size());
  refuse_sums_of_other_sizes(op, arguments);
  if (gives_dense(op, arguments)) return infer(op, stack);
  auto entry = std::make_unique<OpEntry>();
  entry->op = &op;
  entry->device = device_of_call(op, stack);
  entry->description = describe_arguments(op, stack);
  if (op.name == "aten::_to_dense") {
    add_dense_result(*entry, plan_to_dense(arguments));
  } else if (is_bag_without_padding(op, arguments)) {
    add_bag_gradient(*entry, arguments);
  } else if (const uint32_t pattern = pattern_of(op, arguments); pattern != kNoArgument) {
    add_patterned_result(*entry, arguments, pattern);
  } else {
    add_asked_results(*entry, arguments);
  }
  finish_entry(*entry);
  return entry;
}

// ---- What the server replied --------------------------------------------------------------------

// The handles of one kAnyLayout output; those that nobody takes are freed.
class Components {
 public:
  Components(wire::Handle first, const Issued& issued) : next_(first), issued_(issued) {}
  Components(const Components&) = delete;
  Components& operator=(const Components&) = delete;
  ~Components() {
    while (left_ != 0) (void)take({});
  }

  at::Tensor take(const TensorPlan& plan) {
    TORCH_CHECK(left_ != 0, "rgpu: the server's reply has too many components");
    --left_;
    return make_tensor(plan, next_++, issued_);
  }

 private:
  wire::Handle next_;
  const Issued& issued_;
  uint32_t left_ = wire::kComponentsMax;
};

at::Tensor tensor_of(const wire::Arg& result, Components& components) {
  const auto take = [&](const wire::Arg& part) {
    const wire::TensorMeta& meta = part.tensor;
    return components.take(
        plan_of(meta.sizes, meta.strides, static_cast<at::ScalarType>(meta.dtype)));
  };
  if (result.kind == wire::ArgKind::kNone) return {};
  if (result.kind == wire::ArgKind::kTensor) return take(result);
  std::vector<at::Tensor> parts;
  for (const wire::Arg& part : result.items) parts.push_back(take(part));
  return sparse_tensor(result.integers, result.tensor.sizes, parts);
}

// The results in order, from the reply and the handles that the record bound.
torch::jit::Stack results_of(const wire::Reply& reply, const std::vector<ReturnPlan>& returns,
                             const c10::IValue* arguments, const Issued& issued) {
  torch::jit::Stack results;
  wire::Handle handle = issued.first_new_handle;
  size_t next_result = 0;
  size_t next_value = 0;
  for (const ReturnPlan& plan : returns) {
    if (plan.kind == ReturnPlan::Kind::kArgument) {
      results.push_back(arguments[plan.index]);
    } else if (plan.kind == ReturnPlan::Kind::kConstant) {
      TORCH_CHECK(next_value < reply.values.size(), "rgpu: the server's reply lacks a value");
      results.push_back(value_of(reply.values[next_value++]));
    } else {
      TORCH_CHECK(next_result < reply.results.size(), "rgpu: the server's reply lacks a result");
      Components components(handle, issued);
      handle += wire::kComponentsMax;
      at::Tensor tensor = tensor_of(reply.results[next_result++], components);
      if (plan.index != kNoArgument) {
        take_components(arguments[plan.index].toTensor(), tensor);
        tensor = arguments[plan.index].toTensor();
      }
      results.emplace_back(std::move(tensor));
    }
  }
  return results;
}

void free_handles(const Issued& issued, uint32_t count) {
  for (uint32_t i = 0; i < count; i += wire::kComponentsMax) {
    const Components freed(issued.first_new_handle + i, issued);
  }
}

}  // namespace

void issue_sparse(const OpInfo& op, torch::jit::Stack* stack) {
  const CallTracer traced(op.name.c_str());
  Client& client = Client::get();
  (void)client.session();
  const torch::jit::Stack flat = flattened(op, *stack);
  CallKey& key = thread_key();
  key.build(op, flat, context_bits());
  IssueLock lock;
  OpEntry* entry = op_memory().find(key.words(), key.hash());
  if (entry == nullptr) {
    lock.unlock();
    std::unique_ptr<OpEntry> learnt = learn(op, *stack);
    key.build(op, flat, context_bits());  // Meta kernels may have issued ops of their own.
    lock.lock();
    entry = remember(std::move(learnt), key);
  }
  if (!entry->resizes.empty()) {
    const std::vector<ResizePlan> resizes = entry->resizes;
    lock.unlock();
    apply_resizes(op, resizes, *stack);
    issue_sparse(op, stack);
    return;
  }
  const Issued issued = append_call(*entry, key);
  if (op.writes) forget_known(key);
  if (!entry->replies) {
    replace_arguments(op, *stack, entry->tensors, entry->returns, issued);
    wait_if_debug(lock, issued);
    return;
  }
  const std::vector<ReturnPlan> returns = entry->returns;
  const uint32_t handle_count = entry->new_handle_count;
  lock.unlock();
  wire::Reply reply;
  try {
    reply = client.wait(issued.request);
  } catch (...) {
    free_handles(issued, handle_count);
    throw;
  }
  const c10::IValue* arguments = stack->data() + (stack->size() - op.rules.size());
  torch::jit::Stack results = results_of(reply, returns, arguments, issued);
  torch::jit::drop(*stack, op.rules.size());
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

}  // namespace rgpu::backend
