// The part of OpLauncher that keeps and runs stored graphs.
#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "server/torch/device.h"
#include "server/torch/op_launch.h"
#include "server/torch/stored_graph.h"

namespace rgpu::server {

// Each random node draws what it would draw as an op of its own.
class OpLauncher::SeededNodes final : public RandomSource {
 public:
  explicit SeededNodes(OpLauncher& launcher) : launcher_(launcher), offset_(launcher.offset_) {}
  void before() override { launcher_.seed(offset_); }
  void after(int64_t elements) override {
    offset_ += (static_cast<uint64_t>(elements) + 7) / 4 * 4;  // As the client's generator moves.
  }

 private:
  OpLauncher& launcher_;
  uint64_t offset_;
};

namespace {

const std::shared_ptr<StoredGraph>& graph_of(const SlotPtr& slot) {
  TORCH_CHECK(slot->program != nullptr,
              "the handle holds no graph: the server was asked for one that it does not have");
  return slot->program;
}

// The graph's inputs in its order, of the tensors and the numbers in theirs.
std::vector<c10::IValue> in_order(const GraphProgram& program, const c10::IValue& tensors,
                                  const c10::IValue& numbers, c10::Device device) {
  const auto given_tensors = tensors.toListRef();
  const auto given_numbers = numbers.toListRef();
  TORCH_CHECK(given_tensors.size() + given_numbers.size() == program.inputs.size(),
              "the graph takes ", program.inputs.size(), " inputs, not ", given_tensors.size(),
              " tensors and ", given_numbers.size(), " numbers");
  std::vector<c10::IValue> inputs;
  inputs.reserve(program.value_count);
  size_t next_tensor = 0;
  size_t next_number = 0;
  for (const wire::GraphInput kind : program.inputs) {
    const bool is_tensor = kind == wire::GraphInput::kTensor;
    size_t& next = is_tensor ? next_tensor : next_number;
    const auto& given = is_tensor ? given_tensors : given_numbers;
    TORCH_CHECK(next < given.size(), "the graph takes other numbers of tensors and numbers");
    inputs.push_back(given[next++]);
    if (is_tensor && inputs.back().toTensor().device() != device) {
      inputs.back() = inputs.back().toTensor().to(device);  // A number that came with the record.
    }
  }
  return inputs;
}

}  // namespace

void OpLauncher::run_graph_builtin(const OpRecord& record) {
  switch (record.plan->builtin) {
    case OpPlan::Builtin::kGraphBackward:
      call_graph_backward(record);
      return;
    case OpPlan::Builtin::kGraphCall:
      call_stored_graph(record);
      return;
    case OpPlan::Builtin::kGraphState:
      tell_graph_state(record);
      return;
    default:
      provide_graph(record);
      return;
  }
}

// graph_find and graph_load
void OpLauncher::provide_graph(const OpRecord& record) {
  const OpPlan& plan = *record.plan;
  const bool loads = plan.builtin == OpPlan::Builtin::kGraphLoad;
  const int64_t mode = stack_[2].toInt();
  std::shared_ptr<StoredGraph> forward;
  if (plan.args[1].is_graph) forward = graph_of(record.handles[plan.input_count - 1]);
  const ProgramContext context{state_.device_type, state_.client_torch_version};
  std::shared_ptr<StoredGraph> graph;
  if (loads) {
    const at::Tensor given = stack_[0].toTensor();
    TORCH_CHECK_VALUE(given.scalar_type() == at::kByte && given.dim() == 1,
                      "a graph is a row of bytes");
    const at::Tensor bytes = given.cpu().contiguous();
    graph = state_.graphs->load(
        {static_cast<const std::byte*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())},
        std::move(forward), mode, context);
  } else {
    graph = state_.graphs->find(stack_[0].toStringRef(), std::move(forward), mode, context);
  }
  const bool found = graph != nullptr;
  if (found) {
    const uint64_t size_bytes = graph->size_bytes();
    (void)ledger_.reserve(size_bytes);
    record.handles[plan.input_count]->set_program(std::move(graph), size_bytes);
  }
  stack_.clear();
  stack_.emplace_back(at::Tensor());
  stack_.emplace_back(found);
}

void OpLauncher::call_stored_graph(const OpRecord& record) {
  const std::shared_ptr<StoredGraph> graph = graph_of(record.handles[0]);
  const GraphProgram& program = graph->program();
  std::vector<c10::IValue> inputs = in_order(program, stack_[1], stack_[2], device_);
  stack_.clear();
  TORCH_CHECK(program.random_op.empty() || record.plan->random, "the graph draws numbers (",
              program.random_op, "), but the call brings no seed");
  use_default_dtype(program.default_dtype);
  const at::AutoDispatchBelowADInplaceOrView below;
  ++graph->calls;
  const std::shared_ptr<Artefact> artefact = graph->choose(describe_call(record, *graph));
  ran_compiled_ = artefact != nullptr;
  if (ran_compiled_) {
    ++graph->compiled_calls;
    run_artefact(*graph, *artefact, std::move(inputs));
    return;
  }
  std::unique_lock lock(state_.random_mutex, std::defer_lock);
  if (!program.random_op.empty()) lock.lock();
  SeededNodes seeded(*this);
  for (c10::IValue& output : run_program(program, std::move(inputs), seeded)) {
    stack_.push_back(std::move(output));
  }
}

StoredGraph::Call OpLauncher::describe_call(const OpRecord& record, const StoredGraph& graph) {
  const OpPlan& plan = *record.plan;
  StoredGraph::Call call;
  call.has_backward = plan.args[4].constant.toBool();
  for (const ArgPlan& input : plan.args[1].items) {
    const Geometry& geometry = *input.use.geometry;
    call.geometry_ids.push_back(geometry.id);
    call.inputs.push_back({geometry.dtype, geometry.sizes, geometry.strides});
  }
  for (uint32_t i = 1; i < plan.input_count && graph.forward() != nullptr; ++i) {
    const Slot& slot = *record.handles[i];
    if (slot.made_by != graph.forward()->id()) continue;
    call.forward_compiled = slot.made_compiled;
    break;
  }
  return call;
}

void OpLauncher::run_artefact(StoredGraph& graph, Artefact& artefact,
                              std::vector<c10::IValue>&& inputs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (c10::IValue& input : inputs) tensors.push_back(std::move(input).toTensor());
  try {
    for (at::Tensor& output : artefact.run(std::move(tensors))) {
      stack_.emplace_back(std::move(output));
    }
  } catch (const std::exception& error) {
    graph.give_up(std::string("its compiled form failed: ") + error.what());
    throw;
  }
}

// So that its backward runs in the same way.
void OpLauncher::mark_results(const OpRecord& record) {
  for (size_t i = record.plan->input_count; i < record.handles.size(); ++i) {
    record.handles[i]->made_by = record.handles[0]->program->id();
    record.handles[i]->made_compiled = ran_compiled_;
  }
}

void OpLauncher::tell_graph_state(const OpRecord& record) {
  const std::shared_ptr<StoredGraph> graph = graph_of(record.handles[0]);
  const GraphFigures figures = graph->figures();
  stack_.clear();
  for (const int64_t value :
       {static_cast<int64_t>(figures.state), graph->calls.load(), graph->compiled_calls.load(),
        static_cast<int64_t>(graph->encoded_bytes()), figures.compile_ms, figures.compiles}) {
    stack_.emplace_back(value);
  }
  stack_.emplace_back(figures.reason);
}

}  // namespace rgpu::server
