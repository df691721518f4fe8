#include "torch_backend/ops/out_variant.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "torch_backend/ops/sparse_tensor.h"

namespace rgpu::backend {
namespace {

size_t out_count(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return static_cast<size_t>(std::count_if(arguments.begin(), arguments.end(),
                                           [](const c10::Argument& a) { return a.is_out(); }));
}

// The out arguments are a schema's last.
bool is_functional_of(const c10::FunctionSchema& out, const c10::FunctionSchema& functional) {
  const size_t count = out.arguments().size() - out_count(out);
  if (functional.arguments().size() != count || functional.is_mutable()) return false;
  for (size_t i = 0; i < count; ++i) {
    const c10::Argument& a = out.arguments()[i];
    const c10::Argument& b = functional.arguments()[i];
    if (a.name() != b.name() || *a.type() != *b.type()) return false;
  }
  return true;
}

std::optional<c10::OperatorHandle> find_functional(const OpInfo& op) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name != op.name) continue;
    const auto found = dispatcher.findSchema(name);
    if (found && is_functional_of(*op.schema, found->schema())) return found;
  }
  return std::nullopt;
}

c10::OperatorHandle functional_of(const OpInfo& op) {
  static std::mutex mutex;
  static auto* known = new std::unordered_map<const OpInfo*, std::optional<c10::OperatorHandle>>();
  const std::lock_guard lock(mutex);
  auto found = known->find(&op);
  if (found == known->end()) found = known->emplace(&op, find_functional(op)).first;
  TORCH_CHECK_NOT_IMPLEMENTED(found->second.has_value(), "rgpu: ", op.name, ".", op.overload,
                              " has results of a size that only the server knows: call it without "
                              "out=");
  return *found->second;
}

void flatten(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
}

// As every kernel that resizes its out= on the CPU.
void refuse_overlaps(const torch::jit::Stack& arguments, const std::vector<at::Tensor>& outs) {
  std::vector<at::Tensor> inputs;
  for (const c10::IValue& value : arguments) flatten(value, inputs);
  for (const at::Tensor& out : outs) {
    at::assert_no_internal_overlap(out);
    for (const at::Tensor& input : inputs) {
      if (input.defined() && !is_sparse(input)) at::assert_no_overlap(out, input);
    }
  }
}

void put(const OpInfo& op, const at::Tensor& result, const at::Tensor& out) {
  // Linear algebra takes what its result casts to; the others want its type.
  const bool casts = op.name.starts_with("aten::linalg_") || op.name == "aten::geqrf";
  const bool fits = casts ? c10::canCast(result.scalar_type(), out.scalar_type())
                          : out.scalar_type() == result.scalar_type();
  TORCH_CHECK(fits, op.name, ": Expected out tensor to have dtype ", result.dtype(), ", but got ",
              out.dtype(), " instead");
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

}  // namespace

void call_out_variant(const OpInfo& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto count = static_cast<std::ptrdiff_t>(op.rules.size());
  const auto outs_count = static_cast<std::ptrdiff_t>(out_count(*op.schema));
  torch::jit::Stack call(stack->end() - count, stack->end() - outs_count);
  const torch::jit::Stack given(stack->end() - outs_count, stack->end());
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> outs;
  for (const c10::IValue& value : given) flatten(value, outs);
  refuse_overlaps(call, outs);
  functional_of(op).callBoxed(call);
  for (const c10::IValue& value : call) flatten(value, results);
  TORCH_CHECK(results.size() == outs.size(), op.name, ": ", results.size(), " results for ",
              outs.size(), " out tensors");
  for (size_t i = 0; i < outs.size(); ++i) put(op, results[i], outs[i]);
  torch::jit::drop(*stack, op.rules.size());
  if (op.schema->returns().empty()) return;
  for (const c10::IValue& out : given) stack->push_back(out);
}

}  // namespace rgpu::backend
