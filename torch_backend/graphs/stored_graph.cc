#include "torch_backend/graphs/stored_graph.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>

#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/host_values.h"
#include "torch_backend/device/initial_values.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/shape_inference.h"
#include "wire/limits.h"

namespace rgpu::backend {
namespace {

using Kind = GraphResult::Kind;

int64_t next_id() {
  static std::atomic<int64_t> next{1};
  return next++;
}

const OpInfo& builtin(const char* name, std::vector<ArgRule> rules) {
  return *new OpInfo(name, std::move(rules),
                     op_info("aten::scaled_dot_product_attention", "").handle);
}

const OpInfo& call_op() {
  static const OpInfo& op =
      builtin("rgpu::graph_call", {ArgRule::kStatic, ArgRule::kStatic, ArgRule::kImmediate});
  return op;
}

TensorPlan graph_plan() { return plan_of({1}, {1}, at::kByte); }

wire::Arg describe_int(int64_t value) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kInt;
  arg.integer = value;
  return arg;
}

wire::Arg describe_bool(bool value) {
  wire::Arg arg;
  arg.kind = wire::ArgKind::kBool;
  arg.integer = value ? 1 : 0;
  return arg;
}

wire::Arg describe_optional(const at::Tensor& tensor) {
  return tensor.defined() ? describe_tensor(tensor) : wire::Arg{};
}

c10::IValue or_none(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

// A record that is answered, of a call whose arguments are described by `args`; returns what it
// asks for. With `handle`, it makes one.
struct Asked {
  Issued issued;
  at::Tensor made;
};
Asked ask_server(const OpInfo& op, const torch::jit::Stack& stack, std::vector<wire::Arg> args,
                 bool makes_graph) {
  const CallTracer traced(op.name.c_str());
  CallKey& key = thread_key();
  key.build(op, stack, context_bits());
  const IssueLock lock;
  OpEntry* entry = op_memory().find(key.words(), key.hash());
  if (entry == nullptr) {
    auto made = std::make_unique<OpEntry>();
    made->op = &op;
    made->device = current_device();
    made->replies = true;
    made->description.name = op.name;
    made->description.args = std::move(args);
    if (makes_graph) made->description.outputs.push_back({wire::OutputKind::kOpaque, {}});
    finish_entry(*made);
    entry = remember(std::move(made), key);
  }
  Asked asked;
  asked.issued = append_call(*entry, key);
  if (makes_graph) {
    asked.made = make_tensor(graph_plan(), asked.issued.first_new_handle, asked.issued);
  }
  return asked;
}

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage(),
              "rgpu: a compiled graph takes strided tensors, not one of layout ", tensor.layout());
}

c10::DeviceIndex device_of(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().type() == kDeviceType) return tensor.device().index();
  }
  return current_device();
}

StoredGraph::Figures figures_of(const wire::Reply& reply) {
  TORCH_CHECK(reply.values.size() >= 7, "rgpu: the server's answer about a graph has ",
              reply.values.size(), " of 7 values");
  StoredGraph::Figures figures;
  figures.state = static_cast<StoredGraph::State>(reply.values[0].integer);
  figures.calls = reply.values[1].integer;
  figures.compiled_calls = reply.values[2].integer;
  figures.size_bytes = reply.values[3].integer;
  figures.compile_ms = reply.values[4].integer;
  figures.compiles = reply.values[5].integer;
  figures.reason = reply.values[6].text;
  return figures;
}

at::Tensor view_over(const at::Tensor& base, const GraphResult& result) {
  return at::as_strided(base, result.plan.sizes, result.plan.strides,
                        base.storage_offset() + result.offset);
}

}  // namespace

GraphResults::GraphResults(std::vector<GraphResult> all, size_t returned, int64_t drawn)
    : results(std::move(all)), visible(returned), draws(drawn), id(next_id()) {
  TORCH_CHECK_VALUE(visible <= results.size(), "more results are returned than there are");
  TORCH_CHECK_VALUE(drawn >= 0 && drawn % 4 == 0, "a graph's draws are a multiple of 4");
  for (const GraphResult& result : results) {
    if (result.kind != Kind::kViewOfResult) continue;
    TORCH_CHECK_VALUE(result.index < results.size() && results[result.index].kind == Kind::kNew,
                      "a view of result ", result.index, ", which is no new tensor");
  }
}

StoredGraph::StoredGraph(std::vector<std::byte> encoded, std::string hash, GraphOptions options,
                         std::shared_ptr<StoredGraph> forward)
    : encoded_(std::move(encoded)),
      hash_(std::move(hash)),
      options_(std::move(options)),
      forward_(std::move(forward)),
      id_(next_id()) {
  TORCH_CHECK_VALUE(encoded_.size() <= limits::kGraphSizeBytesMax, "a graph of ", encoded_.size(),
                    " bytes is over the limit of ", limits::kGraphSizeBytesMax);
}

void StoredGraph::load() { (void)loaded(); }

at::Tensor StoredGraph::loaded() {
  (void)Client::get().session();
  const std::lock_guard lock(mutex_);
  const uint32_t generation = Client::get().generation();
  if (graph_.defined() && generation_ == generation) [[likely]]
    return graph_;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor forward = forward_ == nullptr ? at::Tensor() : forward_->loaded();
  sent_bytes_ = 0;
  if ((options_.mode & GraphOptions::kUncached) != 0 || !find(forward)) send(forward);
  generation_ = generation;
  return graph_;
}

bool StoredGraph::find(const at::Tensor& forward) {
  static const OpInfo& op =
      builtin("rgpu::graph_find", {ArgRule::kStatic, ArgRule::kStatic, ArgRule::kStatic});
  wire::Arg hash;
  hash.kind = wire::ArgKind::kString;
  hash.text = hash_;
  const torch::jit::Stack stack{hash_, or_none(forward), options_.mode};
  Asked asked =
      ask_server(op, stack, {hash, describe_optional(forward), describe_int(options_.mode)},
                 /*makes_graph=*/true);
  const wire::Reply reply = Client::get().wait(asked.issued.request);
  TORCH_CHECK(reply.values.size() == 1, "rgpu: the server did not say whether it has the graph");
  if (reply.values[0].integer == 0) return false;
  graph_ = std::move(asked.made);
  return true;
}

void StoredGraph::send(const at::Tensor& forward) {
  static const OpInfo& op =
      builtin("rgpu::graph_load", {ArgRule::kStatic, ArgRule::kStatic, ArgRule::kStatic});
  const auto size = static_cast<int64_t>(encoded_.size());
  const at::Tensor on_host =
      at::from_blob(const_cast<std::byte*>(encoded_.data()), {size}, at::kByte);  // Only read.
  const at::Tensor bytes = on_host.to(c10::Device(kDeviceType, current_device()));
  const torch::jit::Stack stack{bytes, or_none(forward), options_.mode};
  Asked asked = ask_server(
      op, stack, {describe_tensor(bytes), describe_optional(forward), describe_int(options_.mode)},
      /*makes_graph=*/true);
  (void)Client::get().wait(asked.issued.request);
  graph_ = std::move(asked.made);
  sent_bytes_ = encoded_.size();
}

uint64_t StoredGraph::sent_bytes() const {
  const std::lock_guard lock(mutex_);
  return sent_bytes_;
}

// ---- Calls --------------------------------------------------------------------------------------

std::vector<c10::IValue> StoredGraph::call(const std::vector<at::Tensor>& tensors,
                                           const std::vector<c10::IValue>& scalars,
                                           const GraphResults& results) {
  TORCH_CHECK_VALUE(tensors.size() == options_.written.size(), "the graph takes ",
                    options_.written.size(), " tensors, not ", tensors.size());
  const CallTracer traced("rgpu::graph_call");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const at::Tensor& tensor : tensors) check_tensor(tensor);
  std::vector<c10::IValue> returned = append(tensors, scalars, results);
  for (size_t i = 0; i < returned.size(); ++i) {
    const GraphResult& result = results.results[i];
    if (result.kind == Kind::kInput) returned[i] = tensors.at(result.index);
    if (result.kind == Kind::kScalar) returned[i] = result.scalar;
    if (result.kind == Kind::kViewOfInput) {
      returned[i] = view_over(tensors.at(result.index), result);
    } else if (result.kind == Kind::kViewOfResult) {
      returned[i] = view_over(returned[result.index].toTensor(), result);
    }
  }
  returned.resize(results.visible);
  return returned;
}

// Numbers that the server has not heard of yet go with the record.
c10::List<at::Tensor> StoredGraph::with_values(const std::vector<at::Tensor>& tensors) const {
  c10::List<at::Tensor> given;
  given.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor value;
    if (!options_.written[i] && tensors[i].dim() == 0) {
      value = InitialValues::get().find(tensors[i]);
    }
    given.push_back(value.defined() ? std::move(value) : tensors[i]);
  }
  return given;
}

// The record, and its new tensors in their places.
std::vector<c10::IValue> StoredGraph::append(const std::vector<at::Tensor>& tensors,
                                             const std::vector<c10::IValue>& scalars,
                                             const GraphResults& results) {
  const at::Tensor graph = loaded();
  c10::impl::GenericList numbers(c10::AnyType::get());
  for (const c10::IValue& scalar : scalars) numbers.push_back(scalar);
  const torch::jit::Stack stack{graph, with_values(tensors), std::move(numbers)};
  CallKey& key = thread_key();
  key.build(call_op(), stack, context_bits());
  key.append_words({{id_, results.id}});
  IssueLock lock;
  OpEntry* entry = op_memory().find(key.words(), key.hash());
  if (entry == nullptr) entry = remember(describe_call(stack, results), key);
  const Issued issued = append_call(*entry, key);
  if (!key.knowable().empty()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (options_.written[i]) HostValues::get().forget(storage_of(tensors[i]));
    }
  }
  std::vector<c10::IValue> returned(results.results.size());
  wire::Handle handle = issued.first_new_handle;
  for (size_t i = 0; i < returned.size(); ++i) {
    const GraphResult& result = results.results[i];
    if (result.kind == Kind::kNew) returned[i] = make_tensor(result.plan, handle++, issued);
  }
  wait_if_debug(lock, issued);
  return returned;
}

// `stack`: as the key was built from.
std::unique_ptr<OpEntry> StoredGraph::describe_call(const torch::jit::Stack& stack,
                                                    const GraphResults& results) const {
  auto entry = std::make_unique<OpEntry>();
  entry->op = &call_op();
  const std::vector<at::Tensor> tensors = stack[1].toTensorVector();
  entry->device = device_of(tensors);
  wire::OpTemplate& description = entry->description;
  description.name = entry->op->name;
  description.random = results.draws != 0;
  description.args.resize(5);
  description.args[0] = describe_tensor(stack[0].toTensor());
  description.args[1].kind = wire::ArgKind::kTensorList;
  for (const at::Tensor& t : tensors) {
    TORCH_CHECK(t.device().type() != kDeviceType || t.device().index() == entry->device,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                "rgpu:", entry->device, " and ", t.device(), "! (in a compiled graph)");
    description.args[1].items.push_back(describe_tensor(t));
  }
  description.args[2].kind = wire::ArgKind::kScalarList;
  for (const c10::IValue& scalar : stack[2].toListRef()) {
    description.args[2].items.emplace_back().kind =
        scalar.isInt() ? wire::ArgKind::kScalarInt : wire::ArgKind::kScalarDouble;
  }
  description.args[3].kind = wire::ArgKind::kBoolList;
  for (const bool written : options_.written) description.args[3].integers.push_back(written);
  description.args[4] = describe_bool(options_.has_backward);
  for (const GraphResult& result : results.results) {
    if (result.kind != Kind::kNew) continue;
    description.outputs.push_back(promise_of(result.plan));
    if (result.opaque) description.outputs.back().kind = wire::OutputKind::kOpaque;
    entry->tensors.push_back(result.plan);
  }
  finish_entry(*entry);
  entry->draws_exactly = true;
  entry->random_reserve = results.draws - 4;  // Generator::reserve() rounds it up to `draws`.
  return entry;
}

// ---- State --------------------------------------------------------------------------------------

uint64_t StoredGraph::ask() {
  static const OpInfo& op = builtin("rgpu::graph_state", {ArgRule::kStatic});
  const at::Tensor graph = loaded();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return ask_server(op, {graph}, {describe_tensor(graph)}, /*makes_graph=*/false).issued.request;
}

StoredGraph::Figures StoredGraph::figures() { return figures_of(Client::get().wait(ask())); }

std::optional<StoredGraph::Figures> StoredGraph::poll_figures() {
  Client& client = Client::get();
  uint64_t question = 0;
  {
    const std::lock_guard lock(mutex_);
    if (question_generation_ != client.generation()) question_ = 0;
    question = question_;
  }
  std::optional<Figures> answer;
  if (question != 0) {
    std::optional<Result<wire::Reply>> reply = client.session().poll(question);
    if (!reply) return std::nullopt;
    raise_if_failed(*reply);
    answer = figures_of(**reply);
  }
  question = ask();
  const std::lock_guard lock(mutex_);
  question_ = question;
  question_generation_ = client.generation();
  return answer;
}

}  // namespace rgpu::backend
