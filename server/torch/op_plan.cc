#include "server/torch/op_plan.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "server/torch/schema_match.h"
#include "server/torch/schema_value.h"

namespace rgpu::server {
namespace {

using wire::Arg;
using wire::ArgKind;
using wire::OutputKind;
using wire::TensorMeta;
using Source = ArgPlan::Source;
using Target = ArgPlan::Target;

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// For an error's text: what can be described.
void append_geometries(const Arg& arg, const PlanContext& context, std::string& text) {
  constexpr size_t kSizeBytesMax = 4096;
  for (const Arg& item : arg.items) append_geometries(item, context, text);
  if (arg.kind != ArgKind::kTensor || text.size() > kSizeBytesMax) return;
  const Result<GeometryPtr> geometry = context.geometries.intern(arg.tensor);
  if (geometry) text += (text.empty() ? "" : ", ") + (*geometry)->to_string();
}

class Planner {
 public:
  Planner(const wire::OpTemplate& op, const PlanContext& context, OpPlan& plan)
      : op_(op), context_(context), plan_(plan) {}

  Status plan_args(const SchemaMatch& match) {
    const std::vector<c10::Argument>& arguments = match.op->schema().arguments();
    const size_t added = match.added_end - match.added_begin;
    if (op_.args.size() + added != arguments.size()) {
      return invalid(std::to_string(op_.args.size()) + " arguments where the schema has " +
                     std::to_string(arguments.size() - added));
    }
    size_t given = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = arguments[i];
      plan_.args.emplace_back();
      if (i >= match.added_begin && i < match.added_end) {
        plan_.args.back().constant = *argument.default_value();
        continue;
      }
      // Batch norms change their running statistics without saying so in the schema.
      written_ = (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) ||
                 argument.name() == "running_mean" || argument.name() == "running_var";
      Status status = plan_arg(op_.args[given++], Wanted(*argument.type()), plan_.args.back());
      if (!status.ok()) return status.with_context("argument '" + argument.name() + "'");
    }
    return {};
  }

  // graph_backward(graph, Tensor?[] grad_outputs, bool retain_graph=False)
  Status plan_graph_backward_args() {
    const bool two = op_.args.size() == 2;
    if ((!two && op_.args.size() != 3) || op_.args[0].kind != ArgKind::kTensor ||
        op_.args[1].kind != ArgKind::kTensorList || (!two && op_.args[2].kind != ArgKind::kBool)) {
      return invalid("the arguments must be a graph, a list of gradients and perhaps a bool");
    }
    static const c10::TypePtr list = c10::ListType::create(c10::OptionalType::ofTensor());
    plan_.args.resize(op_.args.size());
    RGPU_RETURN_IF_ERROR(plan_graph(0));
    RGPU_RETURN_IF_ERROR(plan_arg(op_.args[1], Wanted(*list), plan_.args[1]));
    if (two) return {};
    return plan_arg(op_.args[2], Wanted(*c10::BoolType::get()), plan_.args[2]);
  }

  // graph_find(str hash, forward, int mode), graph_load(Tensor bytes, forward, int mode)
  Status plan_graph_source(ArgKind source, const c10::Type& type) {
    const bool fits = op_.args.size() == 3 && op_.args[0].kind == source &&
                      op_.args[2].kind == ArgKind::kInt && op_.outputs.size() == 1 &&
                      op_.outputs[0].kind == OutputKind::kOpaque && op_.replies;
    if (!fits) return invalid("the arguments must be what it is, a forward graph and a mode");
    plan_.args.resize(3);
    RGPU_RETURN_IF_ERROR(plan_arg(op_.args[0], Wanted(type), plan_.args[0]));
    RGPU_RETURN_IF_ERROR(plan_graph(1));
    return plan_arg(op_.args[2], Wanted(*c10::IntType::get()), plan_.args[2]);
  }

  // graph_call(graph, Tensor[] inputs, Scalar[] numbers, bool[] written, bool has_backward)
  Status plan_graph_call() {
    const auto& args = op_.args;
    const bool fits = args.size() == 5 && args[0].kind == ArgKind::kTensor &&
                      args[1].kind == ArgKind::kTensorList &&
                      args[2].kind == ArgKind::kScalarList && args[3].kind == ArgKind::kBoolList &&
                      args[4].kind == ArgKind::kBool && !op_.replies;
    if (!fits || args[3].integers.size() != args[1].items.size()) {
      return invalid("the arguments must be a graph, its inputs and what it does to them");
    }
    static const c10::TypePtr numbers = c10::ListType::create(c10::NumberType::get());
    plan_.args.resize(args.size());
    RGPU_RETURN_IF_ERROR(plan_graph(0));
    ArgPlan& inputs = plan_.args[1];
    inputs.source = Source::kTensorList;
    for (size_t i = 0; i < args[1].items.size(); ++i) {
      const Arg& item = args[1].items[i];
      if (item.kind != ArgKind::kTensor && item.kind != ArgKind::kHostScalar) {
        return invalid("input " + std::to_string(i) + " is no tensor");
      }
      written_ = args[3].integers[i] != 0;
      RGPU_RETURN_IF_ERROR(
          plan_arg(item, Wanted(*c10::TensorType::get()), inputs.items.emplace_back()));
    }
    written_ = false;
    RGPU_RETURN_IF_ERROR(plan_arg(args[2], Wanted(*numbers), plan_.args[2]));
    static const c10::TypePtr bools = c10::ListType::create(c10::BoolType::get());
    RGPU_RETURN_IF_ERROR(plan_arg(args[3], Wanted(*bools), plan_.args[3]));
    return plan_arg(args[4], Wanted(*c10::BoolType::get()), plan_.args[4]);
  }

  // graph_state(graph)
  Status plan_graph_state() {
    const bool fits = op_.args.size() == 1 && op_.args[0].kind == ArgKind::kTensor &&
                      op_.outputs.empty() && op_.replies;
    if (!fits) return invalid("the argument must be a graph");
    plan_.args.resize(1);
    return plan_graph(0);
  }

  Status plan_graph_builtin() {
    switch (plan_.builtin) {
      case OpPlan::Builtin::kGraphBackward:
        return plan_graph_backward_args();
      case OpPlan::Builtin::kGraphFind:
        return plan_graph_source(ArgKind::kString, *c10::StringType::get());
      case OpPlan::Builtin::kGraphLoad:
        return plan_graph_source(ArgKind::kTensor, *c10::TensorType::get());
      case OpPlan::Builtin::kGraphCall:
        return plan_graph_call();
      default:
        return plan_graph_state();
    }
  }

  Status plan_outputs() {
    size_t count = op_.outputs.size();
    if (op_.keeps_graph) {
      if (count == 0 || op_.outputs.back().kind != OutputKind::kOpaque) {
        return invalid("the last output of an op that keeps its graph must be opaque");
      }
      --count;
    }
    for (size_t i = 0; i < count; ++i) {
      const wire::Output& output = op_.outputs[i];
      if (output.kind >= OutputKind::kUnknown && !op_.replies) {
        return invalid("an output of unknown geometry without a reply");
      }
      plan_.outputs.push_back({output.kind, nullptr});
      if (output.kind != OutputKind::kNew && output.kind != OutputKind::kOpaque) continue;
      Result<GeometryPtr> geometry = context_.geometries.intern(output.meta);
      if (!geometry) return geometry.error().with_context("output " + std::to_string(i));
      plan_.outputs.back().geometry = *std::move(geometry);
      if (output.kind != OutputKind::kNew) continue;
      const Geometry& promised = *plan_.outputs.back().geometry;
      const uint64_t size_bytes = static_cast<uint64_t>(promised.extent) * promised.itemsize_bytes;
      plan_.new_size_bytes += std::min(size_bytes, UINT64_MAX - plan_.new_size_bytes);
    }
    return {};
  }

 private:
  // A handle that holds a graph, or none.
  Status plan_graph(size_t i) {
    static const c10::TypePtr type = c10::OptionalType::ofTensor();
    RGPU_RETURN_IF_ERROR(plan_arg(op_.args[i], Wanted(*type), plan_.args[i]));
    plan_.args[i].is_graph = plan_.args[i].source == Source::kTensor;
    return {};
  }

  Status plan_arg(const Arg& arg, const Wanted& wanted, ArgPlan& plan) {
    plan.kind = arg.kind;
    switch (arg.kind) {
      case ArgKind::kTensor:
        if (wanted.kind() != c10::TypeKind::TensorType) return mismatch(wanted);
        plan.source = Source::kTensor;
        return plan_tensor(arg.tensor, plan);
      case ArgKind::kSparse:
        if (wanted.kind() != c10::TypeKind::TensorType) return mismatch(wanted);
        return plan_sparse(arg, wanted, plan);
      case ArgKind::kHostScalar: {
        if (wanted.kind() != c10::TypeKind::TensorType) return mismatch(wanted);
        plan.source = Source::kHostScalar;
        TensorMeta meta = arg.tensor;
        meta.sizes.clear();
        meta.strides.clear();
        return intern(meta, plan);
      }
      case ArgKind::kScalarInt:
      case ArgKind::kScalarDouble:
      case ArgKind::kScalarComplex:
      case ArgKind::kScalarBool:
        return plan_scalar(wanted, plan);
      case ArgKind::kTensorList:
      case ArgKind::kScalarList:
        return plan_list(arg, wanted, plan);
      default: {
        Result<c10::IValue> value = constant_value(arg, wanted, context_.device_type);
        if (!value) return value.error();
        plan.constant = *std::move(value);
        return {};
      }
    }
  }

  Status intern(const TensorMeta& meta, ArgPlan& plan) {
    Result<GeometryPtr> geometry = context_.geometries.intern(meta);
    if (!geometry) return geometry.error();
    plan.use.geometry = *std::move(geometry);
    return {};
  }

  Status plan_tensor(const TensorMeta& meta, ArgPlan& plan) {
    RGPU_RETURN_IF_ERROR(intern(meta, plan));
    plan.use.has_offset = (meta.flags & TensorMeta::kHasOffset) != 0;
    plan.use.requires_grad = (meta.flags & TensorMeta::kRequiresGrad) != 0;
    if (plan.use.requires_grad && !op_.keeps_graph) {
      return invalid("a gradient is wanted of an op that keeps no graph");
    }
    plan_.input_written.push_back(written_ ? 1 : 0);
    plan_.input_geometries.push_back(plan.use.geometry);
    plan_.any_written |= written_;
    return {};
  }

  Status plan_sparse(const Arg& arg, const Wanted& wanted, ArgPlan& plan) {
    plan.source = Source::kSparse;
    plan.sparse = std::make_shared<const SparseForm>(sparse_form(arg));
    for (const Arg& item : arg.items) {
      plan.items.emplace_back();
      RGPU_RETURN_IF_ERROR(plan_arg(item, wanted, plan.items.back()));
    }
    return {};
  }

  static Status plan_scalar(const Wanted& wanted, ArgPlan& plan) {
    plan.source = Source::kScalar;
    switch (wanted.kind()) {
      case c10::TypeKind::NumberType:
        plan.target = Target::kNumber;
        return {};
      case c10::TypeKind::FloatType:
        plan.target = Target::kFloat;
        return {};
      case c10::TypeKind::IntType:
        plan.target = Target::kInt;
        return {};
      case c10::TypeKind::BoolType:
        plan.target = Target::kBool;
        return {};
      default:
        return mismatch(wanted);
    }
  }

  Status plan_list(const Arg& arg, const Wanted& wanted, ArgPlan& plan) {
    if (wanted.kind() != c10::TypeKind::ListType) return mismatch(wanted);
    const Wanted element(*wanted.type->containedType(0));
    const bool tensors = arg.kind == ArgKind::kTensorList;
    const auto element_kind = tensors ? c10::TypeKind::TensorType : c10::TypeKind::NumberType;
    if (element.kind() != element_kind) return mismatch(wanted);
    plan.source = tensors ? Source::kTensorList : Source::kScalarList;
    plan.optional_items = element.optional;
    for (const Arg& item : arg.items) {
      const bool is_scalar = item.kind >= ArgKind::kScalarInt && item.kind <= ArgKind::kScalarBool;
      const bool is_tensor = item.kind == ArgKind::kTensor || item.kind == ArgKind::kSparse ||
                             item.kind == ArgKind::kNone || item.kind == ArgKind::kHostScalar;
      if (tensors ? !is_tensor : !is_scalar) return mismatch(wanted);
      plan.items.emplace_back();
      RGPU_RETURN_IF_ERROR(plan_arg(item, element, plan.items.back()));
    }
    return {};
  }

  const wire::OpTemplate& op_;
  const PlanContext& context_;
  OpPlan& plan_;
  bool written_ = false;
};

// Nothing of the call is looked at beyond its handles.
void plan_refusal(const wire::OpTemplate& op, const PlanContext& context, wire::RemoteError refusal,
                  OpPlan& plan) {
  for (const Arg& arg : op.args) append_geometries(arg, context, refusal.arguments);
  plan.refusal = std::move(refusal);
  // What it would have changed in place is not known: rather too much than stale values.
  bool changes = op.new_handle_count() == 0;
  for (const wire::Output& output : op.outputs) changes |= output.kind == OutputKind::kAlias;
  plan.input_written.assign(plan.input_count, changes ? 1 : 0);
  plan.any_written = changes;
}

OpPlan::Builtin builtin_of(std::string_view name) {
  using Builtin = OpPlan::Builtin;
  constexpr auto kBuiltins = std::to_array<std::pair<std::string_view, Builtin>>({
      {"rgpu::graph_backward", Builtin::kGraphBackward},
      {"rgpu::graph_find", Builtin::kGraphFind},
      {"rgpu::graph_load", Builtin::kGraphLoad},
      {"rgpu::graph_call", Builtin::kGraphCall},
      {"rgpu::graph_state", Builtin::kGraphState},
      {"rgpu::empty_cache", Builtin::kEmptyCache},
      {"rgpu::reset_peak_memory", Builtin::kResetPeakMemory},
      {"rgpu::reset_total_memory", Builtin::kResetTotalMemory},
  });
  for (const auto& [known, builtin] : kBuiltins) {
    if (known == name) return builtin;
  }
  return Builtin::kNone;
}

Status plan_call(const wire::OpTemplate& op, const PlanContext& context, OpPlan& plan) {
  Planner planner(op, context, plan);
  plan.builtin = builtin_of(op.name);
  if (plan.builtin >= OpPlan::Builtin::kEmptyCache) {
    if (op.args.empty() && op.outputs.empty() && !op.replies && !op.random) return {};
    return invalid("neither arguments nor results belong to it");
  }
  if (plan.builtin != OpPlan::Builtin::kNone) {
    RGPU_RETURN_IF_ERROR(planner.plan_graph_builtin());
    return planner.plan_outputs();
  }
  SchemaMatch match = match_schema(op, context.client_torch_version);
  if (!match.op) {
    plan_refusal(op, context, std::move(match.refusal), plan);
    return {};
  }
  plan.op = match.op;
  if (context.device_type == c10::DeviceType::CPU)
    plan.gap_filler = cpu_gap_filler(op.name, op.overload);
  RGPU_RETURN_IF_ERROR(planner.plan_args(match));
  return planner.plan_outputs();
}

}  // namespace

Result<std::unique_ptr<const OpPlan>> make_op_plan(const wire::OpTemplate& op,
                                                   const PlanContext& context) {
  auto plan = std::make_unique<OpPlan>();
  plan->name = op.name;
  plan->full_name = op.name + (op.overload.empty() ? "" : ".") + op.overload;
  plan->handle_count = op.handle_count();
  plan->input_count = op.handle_count() - op.new_handle_count();
  plan->immediates_size_bytes = op.immediates_size_bytes();
  plan->random = op.random;
  plan->replies = op.replies;
  plan->keeps_graph = op.keeps_graph;
  plan->default_dtype = static_cast<c10::ScalarType>(op.default_dtype);
  plan->ends_with_info = op.name.starts_with("aten::") && op.name.ends_with("_ex");
  plan->takes_host_batch_sizes = op.overload == "data" && op.args.size() > 1 &&
                                 (op.name == "aten::lstm" || op.name == "aten::gru" ||
                                  op.name == "aten::rnn_tanh" || op.name == "aten::rnn_relu");
  plan->looks_for_gradient = op.name == "aten::_sparse_mm_reduce_impl" && op.args.size() > 1;
  plan->checks_info = op.name == "aten::_linalg_check_errors";
  Status status = plan_call(op, context, *plan);
  if (status.ok() && plan->input_written.size() != plan->input_count) {
    status = invalid("a tensor where the schema has none");
  }
  if (!status.ok()) return status.with_context("op " + plan->full_name);
  return std::unique_ptr<const OpPlan>(std::move(plan));
}

}  // namespace rgpu::server
