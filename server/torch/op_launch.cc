#include "server/torch/op_launch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/crash_report.h"
#include "server/torch/device.h"
#include "server/torch/download.h"
#include "server/torch/op_results.h"
#include "server/torch/remote_error.h"

namespace rgpu::server {
namespace {

using wire::OutputKind;

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// What may differ from the client's promise, and does not, is an ordinary result.
bool is_as_promised(const at::Tensor& result, const Geometry& promised) {
  return result.defined() && result.layout() == c10::Layout::Strided &&
         result.scalar_type() == promised.dtype && result.sizes() == promised.sizes;
}

// A list that the op returns last may be shorter than the handles that the client reserved for it.
bool is_count_as_promised(const OpPlan& plan, size_t count) {
  return count <= plan.outputs.size() &&
         std::all_of(plan.outputs.begin() + static_cast<std::ptrdiff_t>(count), plan.outputs.end(),
                     [](const OutputPlan& o) { return o.kind == OutputKind::kUnknown; });
}

}  // namespace

Status OpLauncher::launch(const OpRecord& record, std::vector<OutgoingReply>& replies) {
  const OpPlan& plan = *record.plan;
  if (skip(record, replies)) return {};
  crash_report::note_op(plan.full_name.c_str());
  if (plan.any_written) {
    for (uint32_t i = 0; i < plan.input_count; ++i) {
      if (plan.input_written[i] != 0) release_for_write(*record.handles[i], state_);
    }
  }
  Status status;
  try {
    status = run(record, replies);
  } catch (...) {
    fail(record, to_remote_error(std::current_exception(), ledger_), replies);
  }
  if (plan.any_written) recheck_written(record);
  stack_.clear();
  leaves_.clear();
  results_.clear();
  crash_report::note_op(nullptr);
  return status;
}

Status OpLauncher::run(const OpRecord& record, std::vector<OutgoingReply>& replies) {
  const OpPlan& plan = *record.plan;
  if (plan.builtin >= OpPlan::Builtin::kEmptyCache) {
    run_memory_builtin(plan);
    return {};
  }
  MemoryLedger::Reservation room = ledger_.reserve(plan.new_size_bytes);
  RGPU_RETURN_IF_ERROR(build_stack(record));
  if (plan.takes_host_batch_sizes && !state_.on_cpu()) stack_[1] = stack_[1].toTensor().cpu();
  if (plan.builtin == OpPlan::Builtin::kNone) {
    call_seeded(plan);
  } else {
    run_graph_builtin(record);
  }
  room.release();
  wire::Reply reply;
  bind_results(record, plan.replies ? &reply : nullptr);
  if (plan.builtin == OpPlan::Builtin::kGraphCall) mark_results(record);
  if (plan.replies) answer(record, std::move(reply), replies);
  return {};
}

void OpLauncher::run_memory_builtin(const OpPlan& plan) {
  switch (plan.builtin) {
    case OpPlan::Builtin::kEmptyCache:
      empty_cache(state_.device_type);
      return;
    case OpPlan::Builtin::kResetPeakMemory:
      ledger_.reset_peak();
      return;
    case OpPlan::Builtin::kResetTotalMemory:
      ledger_.reset_totals();
      return;
    default:
      return;
  }
}

void OpLauncher::answer(const OpRecord& record, wire::Reply reply,
                        std::vector<OutgoingReply>& replies) {
  if (const PoisonPtr lost = state_.errors.take_lost()) {
    reply_failed(record, lost_error(*lost), replies);
    return;
  }
  std::memcpy(&reply.request, record.immediates + record.plan->immediates_size_bytes - 8, 8);
  replies.push_back({std::move(reply), {}, nullptr});
}

// ---- Failure ------------------------------------------------------------------------------------

bool OpLauncher::skip(const OpRecord& record, std::vector<OutgoingReply>& replies) {
  const OpPlan& plan = *record.plan;
  PoisonPtr poison;
  for (uint32_t i = 0; i < plan.input_count && !poison; ++i) poison = record.handles[i]->poison;
  if (!poison) {
    if (!plan.refusal) return false;
    fail(record, *plan.refusal, replies);
    return true;
  }
  poison = placed(poison, record);
  poison_all(record, poison);
  if (plan.replies) {
    state_.errors.tell(*poison);
    reply_failed(record, poison->error, replies);
  }
  return true;
}

PoisonPtr OpLauncher::placed(const PoisonPtr& poison, const OpRecord& record) {
  const OpPlan& plan = *record.plan;
  if (!poison->is_unplaced) return poison;
  wire::RemoteError error = poison->error;
  error.message += "\n  needed by " + plan.full_name + "(" + arguments_text(plan) + ")";
  error.location = record.location;
  const auto located = std::make_shared<Poison>(std::move(error));
  if (!poison->reported.exchange(true)) state_.errors.add(located);
  for (uint32_t i = 0; i < plan.input_count; ++i) {
    if (record.handles[i]->poison == poison) record.handles[i]->poison = located;
  }
  return located;
}

void OpLauncher::reply_failed(const OpRecord& record, wire::RemoteError error,
                              std::vector<OutgoingReply>& replies) {
  wire::Reply reply;
  std::memcpy(&reply.request, record.immediates + record.plan->immediates_size_bytes - 8, 8);
  reply.failed = true;
  reply.error = std::move(error);
  replies.push_back({std::move(reply), {}, nullptr});
}

void OpLauncher::poison_all(const OpRecord& record, const PoisonPtr& poison) {
  const OpPlan& plan = *record.plan;
  for (uint32_t i = 0; i < plan.handle_count; ++i) {
    // Who waits for the reply hears of the failure at once and may go on with what it has.
    if (i < plan.input_count && (plan.input_written[i] == 0 || plan.replies)) continue;
    Slot& slot = *record.handles[i];
    if (!slot.poison) slot.poison = poison;
  }
}

void OpLauncher::fail(const OpRecord& record, wire::RemoteError error,
                      std::vector<OutgoingReply>& replies) {
  const OpPlan& plan = *record.plan;
  if (!plan.refusal) {  // A refusal names them itself.
    error.op = plan.name;
    error.arguments = arguments_text(plan);
  }
  error.location = record.location;
  const auto poison = std::make_shared<Poison>(std::move(error));
  poison_all(record, poison);
  if (plan.checks_info && plan.input_count != 0) {
    // The check of a factorization has no result of its own: what was factorized is what failed.
    for (const SlotPtr& sibling : record.handles[0]->siblings) {
      if (!sibling->poison) sibling->poison = poison;
    }
  }
  if (plan.replies) {
    state_.errors.tell(*poison);
    reply_failed(record, poison->error, replies);
  } else {
    state_.errors.add(poison);
  }
}

void OpLauncher::recheck_written(const OpRecord& record) {
  const OpPlan& plan = *record.plan;
  for (uint32_t i = 0; i < plan.input_count; ++i) {
    if (plan.input_written[i] == 0 || record.handles[i]->opaque) continue;
    if (record.handles[i]->home_stream != stream_) continue;
    record.handles[i]->recheck_tensor(*plan.input_geometries[i]);
  }
}

// ---- The call -----------------------------------------------------------------------------------

void OpLauncher::call_seeded(const OpPlan& plan) {
  if (!plan.random) {
    call(plan);
    return;
  }
  const std::lock_guard lock(state_.random_mutex);
  seed(offset_);
  call(plan);
}

// Of the numbers that are drawn next. Under random_mutex.
void OpLauncher::seed(uint64_t offset) {
  at::Generator generator = at::globalContext().defaultGenerator(device_);
  const std::lock_guard lock(generator.mutex());
  if (state_.on_cpu()) {
    // The first draw after seeding is then the one PyTorch's own CPU device makes.
    generator.set_current_seed(offset == 0 ? seed_ : mix(seed_ ^ mix(offset)));
  } else {
    generator.set_current_seed(seed_);
    generator.set_offset(offset);
  }
}

void OpLauncher::use_default_dtype(c10::ScalarType dtype) {
  if (c10::get_default_dtype_as_scalartype() != dtype) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
  }
}

void OpLauncher::call(const OpPlan& plan) {
  use_default_dtype(plan.default_dtype);
  if (plan.keeps_graph) {
    const at::AutoGradMode grad(true);
    plan.op->callBoxed(stack_);
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  if (plan.gap_filler != nullptr) [[unlikely]] {
    plan.gap_filler(*plan.op, stack_);
    return;
  }
  if (plan.looks_for_gradient) {
    // Its kernel says where the extrema are, which its backward trusts, only to who wants a
    // gradient.
    const at::AutoGradMode grad(true);
    stack_[1] = stack_[1].toTensor().detach().requires_grad_(true);
    plan.op->callBoxed(stack_);
    return;
  }
  plan.op->callBoxed(stack_);
}

void OpLauncher::call_graph_backward(const OpRecord& record) {
  const OpPlan& plan = *record.plan;
  const std::shared_ptr<KeptGraph> graph = record.handles[0]->graph;
  TORCH_CHECK(graph != nullptr, "the first argument is no kept graph");
  const auto wanted = stack_[1].toOptionalTensorVector();
  TORCH_CHECK(wanted.size() == graph->outputs.size(), "the graph has ", graph->outputs.size(),
              " outputs, but there are ", wanted.size(), " gradients");
  const bool retain_graph = plan.args.size() > 2 && stack_[2].toBool();
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i] || !wanted[i]->defined() || !graph->outputs[i].requires_grad()) continue;
    outputs.push_back(graph->outputs[i]);
    gradients.push_back(*wanted[i]);
  }
  std::vector<at::Tensor> found(graph->leaves.size());
  if (!outputs.empty()) {
    found = torch::autograd::grad(outputs, graph->leaves, gradients, retain_graph,
                                  /*create_graph=*/false, /*allow_unused=*/true);
  }
  for (size_t i = 0; i < found.size() && i < plan.outputs.size(); ++i) {
    if (found[i].defined() || plan.outputs[i].kind != OutputKind::kNew) continue;
    found[i] = at::zeros(graph->leaves[i].sizes(), graph->leaves[i].options());
  }
  stack_.clear();
  for (at::Tensor& gradient : found) stack_.emplace_back(std::move(gradient));
}

// ---- Results ------------------------------------------------------------------------------------

void OpLauncher::bind_results(const OpRecord& record, wire::Reply* reply) {
  const OpPlan& plan = *record.plan;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (c10::IValue& value : stack_) flatten_result(std::move(value), results_, values_);
  stack_.clear();
  const auto is_sparse = [](const at::Tensor& result) {
    return result.defined() && result.layout() != c10::Layout::Strided;
  };
  if (std::any_of(results_.begin(), results_.end(), is_sparse)) take_apart(results_, plan);
  TORCH_CHECK(is_count_as_promised(plan, results_.size()), "the op returned ", results_.size(),
              " tensors, the client promised ", plan.outputs.size());
  std::shared_ptr<KeptGraph> graph;
  if (plan.keeps_graph) {
    graph = std::make_shared<KeptGraph>();
    graph->leaves = std::move(leaves_);
    for (at::Tensor& result : results_) {
      if (!result.defined()) continue;
      if (result.is_floating_point() || result.is_complex()) graph->outputs.push_back(result);
      result = result.detach();
    }
  }
  uint32_t next = plan.input_count;
  for (size_t i = 0; i < results_.size(); ++i) {
    const OutputPlan& output = plan.outputs[i];
    if (output.kind == OutputKind::kAlias || output.kind == OutputKind::kNone) continue;
    if (output.kind == OutputKind::kAnyLayout) {
      const std::span<const SlotPtr> slots = record.handles.subspan(next, wire::kComponentsMax);
      reply->results.push_back(bind_any_layout(results_[i], slots));
      next += wire::kComponentsMax;
      continue;
    }
    Slot& slot = *record.handles[next++];
    if (output.kind == OutputKind::kOpaque && !is_as_promised(results_[i], *output.geometry)) {
      slot.set_opaque(std::move(results_[i]));
    } else if (output.kind == OutputKind::kUnknown) {
      (void)ledger_.reserve(results_[i].nbytes());  // Only now it is known.
      reply->metas.push_back(bind_unknown(std::move(results_[i]), slot));
    } else {
      // A kept graph holds its outputs, which is one more owner; more than that saved the result.
      const size_t owners_max = graph && output.geometry->is_differentiable() ? 2 : 1;
      const auto broken = bind_new(std::move(results_[i]), *output.geometry, owners_max, slot);
      TORCH_CHECK(!broken, "output ", i, " of ", plan.full_name, ": ", *broken,
                  " (the shapes of client and server disagree)");
    }
  }
  if (plan.ends_with_info && next > plan.input_count) {
    SlotPtr* first = record.handles.data() + plan.input_count;
    record.handles[next - 1]->siblings.assign(first, record.handles.data() + next - 1);
  }
  if (graph) {
    record.handles[next]->opaque = true;
    record.handles[next]->graph = std::move(graph);
  }
  if (reply != nullptr) reply->values = std::move(values_);
}

}  // namespace rgpu::server
