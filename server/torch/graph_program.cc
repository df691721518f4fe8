#include "server/torch/graph_program.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "server/crash_report.h"
#include "server/torch/schema_match.h"
#include "server/torch/schema_value.h"

namespace rgpu::server {
namespace {

using Kind = ProgramArg::Kind;

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// ---- Loading ------------------------------------------------------------------------------------

struct NamedIntOp {
  std::string_view name;
  IntOp op;
};
constexpr auto kIntOps = std::to_array<NamedIntOp>({
    {"rgpu::int_add", IntOp::kAdd},
    {"rgpu::int_mul", IntOp::kMul},
    {"rgpu::int_floordiv", IntOp::kFloorDiv},
    {"rgpu::int_mod", IntOp::kMod},
    {"rgpu::int_min", IntOp::kMin},
    {"rgpu::int_max", IntOp::kMax},
    {"rgpu::int_pow", IntOp::kPow},
});

// Beside those that PyTorch has tagged.
constexpr auto kRandom = std::to_array<std::string_view>(
    {"aten::native_dropout", "aten::_fused_dropout", "aten::rrelu_with_noise",
     "aten::rrelu_with_noise_", "aten::rrelu_with_noise_functional"});
// Tagged, but captured without dropout only.
constexpr auto kNotRandom =
    std::to_array<std::string_view>({"aten::_scaled_dot_product_flash_attention_for_cpu",
                                     "aten::_scaled_dot_product_flash_attention_for_cpu_backward"});

// The client counts on the same (python/rgpu/capture/nodes.py).
bool draws_numbers(std::string_view name, const c10::OperatorHandle& op) {
  const auto holds = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return !holds(kNotRandom) && (holds(kRandom) || op.hasTag(at::Tag::nondeterministic_seeded));
}

bool is_number(wire::ArgKind kind) {
  return kind == wire::ArgKind::kBool || kind == wire::ArgKind::kInt ||
         kind == wire::ArgKind::kDouble || kind == wire::ArgKind::kComplex;
}

// What was a view where the graph was captured may need a copy: kernels of this device may lay out
// their results in another way.
void reshape(const c10::OperatorHandle& /*op*/, torch::jit::Stack& stack) {
  const std::vector<int64_t> sizes = stack[1].toIntVector();
  at::Tensor result = at::reshape(stack[0].toTensor(), sizes);
  stack.clear();
  stack.emplace_back(std::move(result));
}

at::Tensor number_tensor(const at::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Result<Kind> list_kind(const c10::Type& declared) {
  const c10::Type* type = &declared;
  if (type->kind() == c10::TypeKind::OptionalType) type = type->containedType(0).get();
  if (type->kind() == c10::TypeKind::ListType) {
    const c10::Type& element = *type->containedType(0);
    if (element.kind() == c10::TypeKind::TensorType) return Kind::kTensorList;
    if (element.kind() == c10::TypeKind::IntType) return Kind::kIntList;
    const bool optional = element.kind() == c10::TypeKind::OptionalType;
    if (optional && element.containedType(0)->kind() == c10::TypeKind::TensorType) {
      return Kind::kOptionalTensorList;
    }
  }
  return invalid("a list where the schema has " + declared.str());
}

Result<ProgramArg> load_item(const wire::GraphArg& item, Kind list) {
  ProgramArg made;
  if (item.kind == wire::GraphArg::Kind::kValue) {
    made.kind = Kind::kValue;
    made.value = item.value;
    return made;
  }
  const wire::ArgKind kind = item.constant.kind;
  const bool is_int = list == Kind::kIntList && kind == wire::ArgKind::kInt;
  const bool is_none = list != Kind::kIntList && kind == wire::ArgKind::kNone;
  if (item.kind != wire::GraphArg::Kind::kConstant || (!is_int && !is_none)) {
    return invalid("a list with something else than its kind");
  }
  if (is_int) made.constant = item.constant.integer;
  return made;
}

Result<ProgramArg> load_arg(const wire::GraphArg& arg, const c10::Type& type,
                            c10::DeviceType device) {
  ProgramArg made;
  switch (arg.kind) {
    case wire::GraphArg::Kind::kConstant: {
      const Wanted wanted(type);
      const bool is_tensor = wanted.kind() == c10::TypeKind::TensorType;
      if (is_tensor && is_number(arg.constant.kind)) {
        const Wanted number(*c10::NumberType::get());
        const Result<c10::IValue> value = constant_value(arg.constant, number, device);
        if (!value) return value.error();
        made.constant = number_tensor(value->toScalar());
        return made;
      }
      Result<c10::IValue> constant = constant_value(arg.constant, wanted, device);
      if (!constant) return constant.error();
      made.constant = *std::move(constant);
      return made;
    }
    case wire::GraphArg::Kind::kValue:
      made.wants_tensor = Wanted(type).kind() == c10::TypeKind::TensorType;
      made.wants_float = Wanted(type).kind() == c10::TypeKind::FloatType;
      made.kind = Kind::kValue;
      made.value = arg.value;
      return made;
    case wire::GraphArg::Kind::kList: {
      const Result<Kind> kind = list_kind(type);
      if (!kind) return kind.error();
      made.kind = *kind;
      for (const wire::GraphArg& item : arg.items) {
        Result<ProgramArg> loaded = load_item(item, made.kind);
        if (!loaded) return loaded.error();
        made.items.push_back(*std::move(loaded));
      }
      return made;
    }
  }
  return invalid("an argument's kind is unknown");
}

Status load_layout_op(const wire::GraphNode& node, ProgramNode& made, c10::DeviceType device) {
  static const c10::TypePtr ints = c10::ListType::create(c10::IntType::get());
  if (node.args.size() != 2 || node.value_count != 1) {
    return invalid("it takes a tensor and strides, and returns one tensor");
  }
  const c10::TypePtr tensor = c10::TensorType::get();
  for (const c10::TypePtr& type : {tensor, ints}) {
    Result<ProgramArg> loaded = load_arg(node.args[made.args.size()], *type, device);
    if (!loaded) return loaded.error();
    made.args.push_back(*std::move(loaded));
  }
  return {};
}

Status load_own_op(const wire::GraphNode& node, ProgramNode& made, c10::DeviceType device) {
  if (node.name == "rgpu::lay_out") return load_layout_op(node, made, device);
  const auto* known = std::find_if(kIntOps.begin(), kIntOps.end(),
                                   [&](const NamedIntOp& op) { return op.name == node.name; });
  if (known == kIntOps.end()) return invalid("the server has no such op");
  if (node.args.size() != 2 || node.value_count != 1) {
    return invalid("it takes two integers and returns one");
  }
  made.int_op = known->op;
  for (const wire::GraphArg& arg : node.args) {
    Result<ProgramArg> loaded = load_arg(arg, *c10::IntType::get(), device);
    if (!loaded) return loaded.error();
    made.args.push_back(*std::move(loaded));
  }
  return {};
}

Status load_op(const wire::GraphNode& node, ProgramNode& made, const ProgramContext& context) {
  wire::OpTemplate named;
  named.name = node.name;
  named.overload = node.overload;
  named.schema_hash = node.schema_hash;
  const SchemaMatch match = match_schema(named, context.client_torch_version);
  if (!match.op) return {Code::kUnimplemented, match.refusal.message};
  made.op = match.op;
  const std::vector<c10::Argument>& arguments = made.op->schema().arguments();
  const size_t added = match.added_end - match.added_begin;
  if (node.args.size() + added != arguments.size()) {
    return invalid(std::to_string(node.args.size()) + " arguments where the schema has " +
                   std::to_string(arguments.size() - added));
  }
  made.random = draws_numbers(node.name, *made.op);
  if (node.name == "aten::view" && node.overload.empty()) {
    made.gap_filler = &reshape;
  } else if (context.device_type == c10::DeviceType::CPU) {
    made.gap_filler = cpu_gap_filler(node.name, node.overload);
  }
  size_t given = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i >= match.added_begin && i < match.added_end) {
      made.args.emplace_back().constant = *arguments[i].default_value();
      continue;
    }
    Result<ProgramArg> loaded =
        load_arg(node.args[given++], *arguments[i].type(), context.device_type);
    if (!loaded) return loaded.error().with_context("argument '" + arguments[i].name() + "'");
    made.args.push_back(*std::move(loaded));
  }
  return {};
}

template <typename Function>
void for_each_value(const ProgramNode& node, Function function) {
  for (const ProgramArg& arg : node.args) {
    if (arg.kind == Kind::kValue) function(arg.value);
    for (const ProgramArg& item : arg.items) {
      if (item.kind == Kind::kValue) function(item.value);
    }
  }
}

void note_last_uses(GraphProgram& program) {
  constexpr size_t kForever = std::numeric_limits<size_t>::max();
  std::vector<size_t> last(program.value_count, 0);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ProgramNode& node = program.nodes[i];
    for_each_value(node, [&](uint32_t value) { last[value] = i; });
    for (uint32_t v = 0; v < node.value_count; ++v) last[node.first_value + v] = i;
  }
  for (const wire::GraphOutput& output : program.outputs) {
    if (!output.is_none) last[output.value] = kForever;
  }
  for (uint32_t value = 0; value < program.value_count; ++value) {
    if (last[value] == kForever || program.nodes.empty()) continue;
    program.nodes[last[value]].last_uses.push_back(value);
  }
}

// ---- Running ------------------------------------------------------------------------------------

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t power(int64_t base, int64_t exponent) {
  TORCH_CHECK(exponent >= 0, "a size has a negative power");
  if (exponent == 0) return 1;
  if (base >= -1 && base <= 1) return exponent % 2 == 0 ? base * base : base;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    TORCH_CHECK(!__builtin_mul_overflow(result, base, &result), "a size overflows");
  }
  return result;
}

int64_t compute(IntOp op, int64_t a, int64_t b) {
  TORCH_CHECK(b != 0 || (op != IntOp::kFloorDiv && op != IntOp::kMod), "a size is divided by zero");
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case IntOp::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case IntOp::kMul:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case IntOp::kFloorDiv:
    case IntOp::kMod:
      overflows = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (!overflows) result = op == IntOp::kMod ? a - floor_div(a, b) * b : floor_div(a, b);
      break;
    case IntOp::kPow:
      return power(a, b);
    case IntOp::kMin:
      return std::min(a, b);
    case IntOp::kMax:
      return std::max(a, b);
    case IntOp::kNone:
      break;
  }
  TORCH_CHECK(!overflows, "a size overflows");
  return result;
}

class Run {
 public:
  Run(const GraphProgram& program, std::vector<c10::IValue> inputs, RandomSource& random)
      : values_(std::move(inputs)), random_(random) {
    TORCH_CHECK(values_.size() == program.inputs.size(), "the graph takes ", program.inputs.size(),
                " inputs, not ", values_.size());
    for (size_t i = 0; i < values_.size(); ++i) check_input(program.inputs[i], values_[i], i);
    values_.resize(program.value_count);
  }

  void node(const ProgramNode& node) {
    if (!node.op && node.int_op == IntOp::kNone) {
      values_[node.first_value] = lay_out(tensor(node.args[0]), argument(node.args[1]));
    } else if (!node.op) {
      values_[node.first_value] =
          compute(node.int_op, integer(node.args[0]), integer(node.args[1]));
    } else {
      call(node);
    }
    for (const uint32_t value : node.last_uses) values_[value] = {};
  }

  c10::IValue output(const wire::GraphOutput& output) const {
    return output.is_none ? c10::IValue(at::Tensor()) : values_[output.value];
  }

 private:
  static at::Tensor lay_out(const at::Tensor& given, const c10::IValue& wanted) {
    const std::vector<int64_t> strides = wanted.toIntVector();
    TORCH_CHECK(strides.size() == given.sizes().size(), "a layout of ", strides.size(),
                " dimensions for ", given.dim());
    if (given.strides() == strides) return given;
    at::Tensor copy = at::empty_strided(given.sizes(), strides, given.options());
    copy.copy_(given);
    return copy;
  }

  static void check_input(wire::GraphInput kind, const c10::IValue& value, size_t position) {
    switch (kind) {
      case wire::GraphInput::kTensor:
        TORCH_CHECK(value.isTensor(), "the graph's input ", position, " is a tensor");
        return;
      case wire::GraphInput::kInteger:
        TORCH_CHECK(value.isInt(), "the graph's input ", position, " is an integer");
        return;
      case wire::GraphInput::kFloat:
        TORCH_CHECK(value.isDouble(), "the graph's input ", position, " is a float");
        return;
    }
  }

  void call(const ProgramNode& node) {
    stack_.clear();
    elements_ = 0;
    for (const ProgramArg& arg : node.args) stack_.push_back(argument(arg));
    if (node.random) random_.before();
    if (node.gap_filler != nullptr) [[unlikely]] {
      node.gap_filler(*node.op, stack_);
    } else {
      node.op->callBoxed(stack_);
    }
    uint32_t next = node.first_value;
    for (c10::IValue& result : stack_) store(std::move(result), next, node);
    TORCH_CHECK(next == node.first_value + node.value_count, "it returned ",
                next - node.first_value, " values, not ", node.value_count);
    if (node.random) random_.after(elements_);
  }

  void store(c10::IValue result, uint32_t& next, const ProgramNode& node) {
    if (result.isList()) {
      for (c10::IValue item : result.toListRef()) store(std::move(item), next, node);
      return;
    }
    TORCH_CHECK(next < node.first_value + node.value_count, "it returned more than ",
                node.value_count, " values");
    count(result);
    values_[next++] = with_memory(std::move(result));
  }

  // Zeros without memory are an idea of autograd's, and no kernel's.
  static c10::IValue with_memory(c10::IValue value) {
    if (!value.isTensor() || !value.toTensor().defined()) return value;
    const at::Tensor& tensor = value.toTensor();
    if (!tensor._is_zerotensor()) [[likely]]
      return value;
    return at::zeros(tensor.sizes(), tensor.options());
  }

  void count(const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      elements_ = std::max(elements_, value.toTensor().numel());
    }
  }

  [[nodiscard]] const c10::IValue& value(const ProgramArg& arg) const {
    return arg.kind == Kind::kValue ? values_[arg.value] : arg.constant;
  }
  [[nodiscard]] int64_t integer(const ProgramArg& arg) const {
    const c10::IValue& found = value(arg);
    TORCH_CHECK(found.isInt(), "an integer is wanted, not a ", found.tagKind());
    return found.toInt();
  }
  [[nodiscard]] at::Tensor tensor(const ProgramArg& arg) {
    const c10::IValue& found = value(arg);
    if (found.isNone()) return {};
    if (found.isScalar()) return number_tensor(found.toScalar());
    TORCH_CHECK(found.isTensor(), "a tensor is wanted, not a ", found.tagKind());
    count(found);
    return found.toTensor();
  }

  c10::IValue argument(const ProgramArg& arg) {
    switch (arg.kind) {
      case Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const ProgramArg& item : arg.items) list.push_back(tensor(item));
        return list;
      }
      case Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const ProgramArg& item : arg.items) {
          at::Tensor found = tensor(item);
          list.push_back(found.defined() ? std::optional(std::move(found)) : std::nullopt);
        }
        return list;
      }
      case Kind::kIntList: {
        c10::List<int64_t> list;
        for (const ProgramArg& item : arg.items) list.push_back(integer(item));
        return list;
      }
      case Kind::kConstant:
      case Kind::kValue:
        break;
    }
    if (arg.wants_tensor) return tensor(arg);
    const c10::IValue& found = value(arg);
    if (arg.wants_float && found.isInt()) return static_cast<double>(found.toInt());
    count(found);
    return found;
  }

  std::vector<c10::IValue> values_;
  torch::jit::Stack stack_;
  RandomSource& random_;
  int64_t elements_ = 0;  // The most that a tensor of the node has.
};

}  // namespace

Result<std::shared_ptr<const GraphProgram>> load_program(const wire::Graph& graph,
                                                         const ProgramContext& context) {
  auto program = std::make_shared<GraphProgram>();
  program->inputs = graph.inputs;
  program->outputs = graph.outputs;
  program->default_dtype = static_cast<c10::ScalarType>(graph.default_dtype);
  program->value_count = static_cast<uint32_t>(graph.inputs.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const wire::GraphNode& node = graph.nodes[i];
    ProgramNode made;
    made.first_value = program->value_count;
    made.value_count = node.value_count;
    made.name = node.name + (node.overload.empty() ? "" : ".") + node.overload;
    made.source = node.source;
    const bool is_own = node.name.starts_with("rgpu::");
    Status status =
        is_own ? load_own_op(node, made, context.device_type) : load_op(node, made, context);
    if (!status.ok()) {
      return status.with_context("node " + std::to_string(i) + " (" + made.name +
                                 (node.source.empty() ? "" : ", " + node.source) + ")");
    }
    if (made.random && program->random_op.empty()) program->random_op = made.name;
    program->size_bytes += sizeof(ProgramNode) + made.args.size() * sizeof(ProgramArg) +
                           made.name.size() + made.source.size();
    program->value_count += node.value_count;
    program->nodes.push_back(std::move(made));
  }
  program->size_bytes += program->value_count * sizeof(uint32_t);
  note_last_uses(*program);
  return std::shared_ptr<const GraphProgram>(std::move(program));
}

std::vector<c10::IValue> run_program(const GraphProgram& program, std::vector<c10::IValue> inputs,
                                     RandomSource& random) {
  Run run(program, std::move(inputs), random);
  for (const ProgramNode& node : program.nodes) {
    crash_report::note_op(node.name.c_str());
    try {
      run.node(node);
    } catch (c10::Error& error) {
      error.add_context("  in the graph's " + node.name +
                        (node.source.empty() ? "" : ", from " + node.source));
      throw;
    }
  }
  std::vector<c10::IValue> outputs;
  outputs.reserve(program.outputs.size());
  for (const wire::GraphOutput& output : program.outputs) outputs.push_back(run.output(output));
  return outputs;
}

}  // namespace rgpu::server
