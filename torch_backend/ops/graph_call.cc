#include "torch_backend/ops/graph_call.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>

#include "torch_backend/device/client.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/ops/composite.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/shape_inference.h"

namespace rgpu::backend {
namespace {

using torch::autograd::variable_list;

// In the key's context bits.
constexpr uint64_t kKeepsGraph = uint64_t{1} << 32;
constexpr uint64_t kDraws = uint64_t{1} << 33;

const OpInfo& backward_op() {
  static const OpInfo& op =
      *new OpInfo("rgpu::graph_backward", {ArgRule::kStatic, ArgRule::kStatic, ArgRule::kStatic},
                  op_info("aten::scaled_dot_product_attention", "").handle);
  return op;
}

// The tensors among the call's arguments, in the order of their handles.
std::vector<at::Tensor> tensor_arguments(const OpInfo& op, const torch::jit::Stack& stack) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return;
    TORCH_CHECK_NOT_IMPLEMENTED(value.toTensor().layout() == at::kStrided, "rgpu: ", op.name,
                                " takes no tensors of layout ", value.toTensor().layout());
    tensors.push_back(value.toTensor());
  };
  for (size_t i = stack.size() - op.rules.size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      add(stack[i]);
    } else if (stack[i].isList()) {
      for (const c10::IValue& item : stack[i].toListRef()) add(item);
    }
  }
  return tensors;
}

void mark_leaves(wire::OpTemplate& description, const std::vector<at::Tensor>& tensors) {
  size_t next = 0;
  const auto mark = [&](wire::Arg& arg) {
    if (arg.kind != wire::ArgKind::kTensor && arg.kind != wire::ArgKind::kHostScalar) return;
    if (tensors[next++].requires_grad() && arg.kind == wire::ArgKind::kTensor) {
      arg.tensor.flags |= wire::TensorMeta::kRequiresGrad;
    }
  };
  for (wire::Arg& arg : description.args) {
    mark(arg);
    for (wire::Arg& item : arg.items) mark(item);
  }
}

// Fused attention kernels write [batch, query, head, dim] and return it transposed; promising the
// same layout saves a copy on the server and one after the transpose that follows in every model.
void promise_attention_layout(OpEntry& entry) {
  TensorPlan& out = entry.tensors[0];
  if (entry.op->name != "aten::scaled_dot_product_attention" || out.sizes.size() != 4) return;
  const int64_t heads = out.sizes[1];
  const int64_t dim = out.sizes[3];
  const std::vector<int64_t> strides = {out.sizes[2] * heads * dim, dim, heads * dim, 1};
  out = plan_of(out.sizes, strides, out.dtype.toScalarType());
  entry.description.outputs[0] = promise_of(out);
}

// How many numbers dropout draws inside, for what is never returned: the attention weights, as the
// composite draws them; of every layer and step of a recurrent op, rather too many.
void reserve_draws(OpEntry& entry, const torch::jit::Stack& stack) {
  if (entry.op->name != "aten::scaled_dot_product_attention") {
    entry.random_reserve *= 4096;
    return;
  }
  const at::IntArrayRef query = stack[0].toTensor().sizes();
  entry.random_reserve = stack[1].toTensor().size(-2);
  for (size_t i = 0; i + 1 < query.size(); ++i) entry.random_reserve *= query[i];
  entry.draws_exactly = true;
}

OpEntry* find_or_learn(const OpInfo& op, const torch::jit::Stack& stack,
                       const torch::jit::Stack& given, CallKey& key, bool keeps_graph,
                       const std::vector<at::Tensor>& tensors, IssueLock& lock) {
  const bool drawing = draws(op, stack);
  const auto build = [&] {
    key.build(op, stack, context_bits() | (keeps_graph ? kKeepsGraph : 0) | (drawing ? kDraws : 0));
    if (!keeps_graph) return;
    for (const at::Tensor& tensor : tensors) {
      const int64_t wanted = tensor.requires_grad() ? 1 : 0;
      key.append_words({&wanted, 1});
    }
  };
  build();
  lock.lock();
  if (OpEntry* entry = op_memory().find(key.words(), key.hash())) return entry;
  lock.unlock();
  std::unique_ptr<OpEntry> entry = infer(op, stack, &given);
  TORCH_CHECK(!entry->replies, "rgpu: the shape of the result of ", op.name, " is not known");
  promise_attention_layout(*entry);
  entry->description.random = drawing;
  if (keeps_graph) {
    mark_leaves(entry->description, tensors);
    entry->description.keeps_graph = true;
    entry->description.outputs.push_back({wire::OutputKind::kOpaque, {}});
  }
  finish_entry(*entry);
  reserve_draws(*entry, stack);
  build();  // Meta kernels may have issued ops of their own.
  lock.lock();
  return remember(std::move(entry), key);
}

// A packed sequence's batch sizes lie on the host; they travel like any tensor, and the server puts
// them where its kernels want them.
torch::jit::Stack with_uploaded_batch_sizes(const OpInfo& op, const torch::jit::Stack& given) {
  torch::jit::Stack stack(given.end() - static_cast<std::ptrdiff_t>(op.rules.size()), given.end());
  if (op.overload == "data" && stack[1].toTensor().device().is_cpu()) {
    stack[1] = stack[1].toTensor().to(stack[0].toTensor().device());
  }
  return stack;
}

struct Called {
  std::vector<at::Tensor> outputs;
  at::Tensor graph;  // A one-byte tensor that holds the graph's handle.
};

// Where a saved call had a tensor.
const at::Tensor& placeholder() {
  static const at::Tensor tensor = at::empty({0});
  return tensor;
}

TensorPlan graph_plan() { return plan_of({1}, {1}, at::kByte); }

Called call(const OpInfo& op, const torch::jit::Stack& given, bool keeps_graph,
            const std::vector<at::Tensor>& tensors) {
  const CallTracer traced(op.name.c_str());
  const torch::jit::Stack stack = with_uploaded_batch_sizes(op, given);
  (void)Client::get().session();
  IssueLock lock(IssueLock::Start::kUnlocked);
  CallKey& key = thread_key();
  OpEntry* entry = find_or_learn(op, stack, given, key, keeps_graph, tensors, lock);
  const Issued issued = append_call(*entry, key);
  Called called;
  Handle handle = issued.first_new_handle;
  for (const TensorPlan& plan : entry->tensors) {
    called.outputs.push_back(make_tensor(plan, handle++, issued));
  }
  if (keeps_graph) called.graph = make_tensor(graph_plan(), handle, issued);
  wait_if_debug(lock, issued);
  return called;
}

// vmap, torch.func and tensor subclasses: there is no storage of ours behind it.
bool stands_for_others(const at::Tensor& tensor) {
  return tensor.defined() &&
         (!tensor.has_storage() || tensor.key_set().has(c10::DispatchKey::Python));
}

// The backward of a graph call's backward.
struct SecondDerivative final : public torch::autograd::Node {
  SecondDerivative(torch::autograd::edge_list&& edges, const OpInfo& call,
                   torch::jit::Stack call_arguments, const variable_list& inputs,
                   const variable_list& gradients)
      : Node(std::move(edges)), op(call), arguments(std::move(call_arguments)) {
    for (const at::Tensor& input : inputs) saved_inputs.emplace_back(input, false);
    for (const at::Tensor& gradient : gradients) saved_gradients.emplace_back(gradient, false);
  }
  std::string name() const override { return "RgpuGraphBackwardBackward"; }
  void release_variables() override {
    saved_inputs.clear();
    saved_gradients.clear();
    released = true;
  }

  variable_list apply(variable_list&& weights) override {
    TORCH_CHECK(!released,
                "Trying to backward through the graph a second time. Specify retain_graph=True if "
                "you need to.");
    variable_list inputs;
    variable_list gradients;
    for (const auto& saved : saved_inputs) inputs.push_back(saved.unpack());
    for (const auto& saved : saved_gradients) gradients.push_back(saved.unpack());
    return differentiate_twice(op, arguments, inputs, gradients, weights);
  }

  const OpInfo& op;
  const torch::jit::Stack arguments;
  std::vector<torch::autograd::SavedVariable> saved_inputs;
  std::vector<torch::autograd::SavedVariable> saved_gradients;
  bool released = false;
};

struct GraphBackward final : public torch::autograd::Node {
  at::Tensor graph;
  const OpInfo* op = nullptr;
  torch::jit::Stack arguments;  // Of the call; the tensors are in saved_inputs.
  std::vector<TensorPlan> leaves;
  // Everything the server's graph may have saved: unpacking finds what was changed in place since.
  std::vector<torch::autograd::SavedVariable> saved_inputs;
  std::vector<torch::autograd::SavedVariable> saved_outputs;

  explicit GraphBackward(torch::autograd::edge_list&& edges) : Node(std::move(edges)) {}
  std::string name() const override { return "RgpuGraphBackward"; }
  void release_variables() override {
    graph.reset();
    saved_inputs.clear();
    saved_outputs.clear();
  }

  // What backward needs of the call. `leaves`: the tensors whose gradient is wanted.
  void keep(const OpInfo& call, const torch::jit::Stack& stack, const variable_list& tensors,
            const variable_list& wanted, Called& called) {
    op = &call;
    graph = std::move(called.graph);
    const auto without = [](const at::Tensor&) { return c10::IValue(placeholder()); };
    for (size_t i = stack.size() - call.rules.size(); i < stack.size(); ++i) {
      arguments.push_back(replace_tensors(stack[i], without));
    }
    for (const at::Tensor& leaf : wanted) {
      // In the leaf's own order of dimensions: what follows is the inverse of the views before.
      leaves.push_back(plan_of(leaf.sizes(), at::infer_dense_strides(leaf.sizes(), leaf.strides()),
                               leaf.scalar_type()));
    }
    for (const at::Tensor& tensor : tensors) saved_inputs.emplace_back(tensor, false);
    const c10::intrusive_ptr<Node> self = getptr();
    for (at::Tensor& output : called.outputs) {
      torch::autograd::set_history(output, self);
      saved_outputs.emplace_back(output, true);
    }
  }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(graph.defined(),
                "Trying to backward through the graph a second time. Specify retain_graph=True if "
                "you need to.");
    variable_list seen;
    for (const auto& saved : saved_inputs) seen.push_back(saved.unpack());
    for (const auto& saved : saved_outputs) (void)saved.unpack(getptr());
    if (std::any_of(gradients.begin(), gradients.end(), stands_for_others)) {
      TORCH_CHECK(!draws(*op, arguments), "rgpu: many gradients at once (vmap) of ", op->name,
                  " with dropout are not implemented; without dropout they are");
      return differentiate_once(*op, arguments, seen, gradients);
    }
    variable_list results = call_backward(gradients);
    if (at::GradMode::is_enabled()) attach_second_derivative(results, seen, gradients);
    return results;
  }

 private:
  variable_list call_backward(const variable_list& gradients) const {
    const bool retains = torch::autograd::get_current_graph_task_keep_graph();
    const torch::jit::Stack stack{graph, c10::List<at::Tensor>(gradients), retains};
    const CallTracer traced("rgpu::graph_backward");
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    IssueLock lock(IssueLock::Start::kUnlocked);
    CallKey& key = thread_key();
    key.build(backward_op(), stack, context_bits());
    for (const TensorPlan& leaf : leaves) {
      key.append_words(leaf.sizes);
      key.append_words(leaf.strides);
      const int64_t end = -1 - static_cast<int64_t>(leaf.dtype.toScalarType());
      key.append_words({&end, 1});
    }
    lock.lock();
    OpEntry* entry = op_memory().find(key.words(), key.hash());
    if (entry == nullptr) entry = remember(describe(gradients, retains), key);
    const Issued issued = append_call(*entry, key);
    Handle handle = issued.first_new_handle;
    variable_list results;
    for (const TensorPlan& leaf : leaves) results.push_back(make_tensor(leaf, handle++, issued));
    wait_if_debug(lock, issued);
    return results;
  }

  // The gradients' own graph is on no side: whoever differentiates them runs the composite.
  void attach_second_derivative(variable_list& results, const variable_list& inputs,
                                const variable_list& gradients) const {
    variable_list sources = inputs;
    sources.insert(sources.end(), gradients.begin(), gradients.end());
    auto edges = torch::autograd::collect_next_edges(sources);
    c10::intrusive_ptr<torch::autograd::Node> node;
    if (draws(*op, arguments)) {
      node = c10::make_intrusive<torch::autograd::NotImplemented>(
          "the second derivative of " + op->name +
              " with dropout on device rgpu (without dropout it is)",
          std::move(edges));
    } else {
      node = c10::make_intrusive<SecondDerivative>(std::move(edges), *op, arguments, inputs,
                                                   gradients);
    }
    for (at::Tensor& result : results) torch::autograd::set_history(result, node);
  }

  std::unique_ptr<OpEntry> describe(const variable_list& gradients, bool retains) const {
    auto entry = std::make_unique<OpEntry>();
    entry->op = &backward_op();
    entry->device = graph.device().index();
    wire::OpTemplate& description = entry->description;
    description.name = entry->op->name;
    description.args.resize(3);
    description.args[0] = describe_tensor(graph);
    description.args[1].kind = wire::ArgKind::kTensorList;
    for (const at::Tensor& gradient : gradients)
      description.args[1].items.push_back(describe_tensor(gradient));
    description.args[2].kind = wire::ArgKind::kBool;
    description.args[2].integer = retains ? 1 : 0;
    for (const TensorPlan& leaf : leaves) description.outputs.push_back(promise_of(leaf));
    entry->tensors = leaves;
    finish_entry(*entry);
    return entry;
  }
};

torch::jit::Stack arguments_of(const OpInfo& op, const torch::jit::Stack& stack) {
  return {stack.end() - static_cast<std::ptrdiff_t>(op.rules.size()), stack.end()};
}

bool has_tangent(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->_fw_grad(/*level=*/0, tensor).defined();
}

bool needs_composite(const std::vector<at::Tensor>& tensors) {
  return c10::impl::dispatch_mode_enabled() ||
         std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return stands_for_others(t) || has_tangent(t); });
}

void push_outputs(const OpInfo& op, torch::jit::Stack* stack, std::vector<at::Tensor>&& outputs) {
  torch::jit::drop(*stack, op.rules.size());
  for (at::Tensor& output : outputs) stack->emplace_back(std::move(output));
}

}  // namespace

void graph_call_plain(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  Called called = call(info, *stack, false, {});
  push_outputs(info, stack, std::move(called.outputs));
}

void graph_call_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpInfo& info = op_info(op);
  const std::vector<at::Tensor> tensors = tensor_arguments(info, *stack);
  if (needs_composite(tensors)) {
    push_outputs(info, stack, run_composite(info, arguments_of(info, *stack)));
    return;
  }
  variable_list leaves;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) leaves.push_back(tensor);
  }
  const bool keeps_graph = at::GradMode::is_enabled() && !leaves.empty();
  c10::intrusive_ptr<GraphBackward> node;
  if (keeps_graph) {
    // Before the call, so that the forward's sequence number is this node's.
    node = c10::make_intrusive<GraphBackward>(torch::autograd::collect_next_edges(leaves));
  }
  Called called;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    called = call(info, *stack, keeps_graph, tensors);
  }
  if (keeps_graph) node->keep(info, *stack, tensors, leaves, called);
  push_outputs(info, stack, std::move(called.outputs));
}

}  // namespace rgpu::backend
