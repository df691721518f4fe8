#include "torch_backend/graphs/graph_builder.h"

#include <c10/core/DefaultDtype.h>

#include <utility>

#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/shape_inference.h"

namespace rgpu::backend {

GraphBuilder::GraphBuilder() {
  graph_.default_dtype = static_cast<int8_t>(c10::get_default_dtype_as_scalartype());
}

uint32_t GraphBuilder::add_input(wire::GraphInput kind) {
  TORCH_CHECK_VALUE(graph_.nodes.empty(), "the inputs of a graph come before its nodes");
  graph_.inputs.push_back(kind);
  return value_count_++;
}

uint32_t GraphBuilder::add(wire::GraphNode node) {
  const uint32_t first = value_count_;
  value_count_ += node.value_count;
  graph_.nodes.push_back(std::move(node));
  return first;
}

uint32_t GraphBuilder::add_node(const c10::OperatorHandle& op, std::vector<wire::GraphArg> args,
                                uint32_t value_count, std::string source) {
  wire::GraphNode node;
  const OpInfo& info = op_info(op);
  node.name = info.name;
  node.overload = info.overload;
  node.schema_hash = info.schema_hash;
  node.args = std::move(args);
  node.value_count = value_count;
  node.source = std::move(source);
  return add(std::move(node));
}

uint32_t GraphBuilder::add_integer_node(std::string name, std::vector<wire::GraphArg> args) {
  wire::GraphNode node;
  node.name = std::move(name);
  node.args = std::move(args);
  return add(std::move(node));
}

uint32_t GraphBuilder::add_layout_node(wire::GraphArg tensor, std::vector<wire::GraphArg> strides) {
  wire::GraphNode node;
  node.name = "rgpu::lay_out";
  node.args = {std::move(tensor), list(std::move(strides))};
  return add(std::move(node));
}

void GraphBuilder::add_output(uint32_t value) { graph_.outputs.push_back({false, value}); }

wire::GraphArg GraphBuilder::constant(const c10::IValue& value, const c10::Argument& argument) {
  wire::GraphArg arg;
  arg.constant = describe_constant(value, argument);
  return arg;
}

wire::GraphArg GraphBuilder::value(uint32_t number) {
  wire::GraphArg arg;
  arg.kind = wire::GraphArg::Kind::kValue;
  arg.value = number;
  return arg;
}

wire::GraphArg GraphBuilder::integer(int64_t number) {
  wire::GraphArg arg;
  arg.constant.kind = wire::ArgKind::kInt;
  arg.constant.integer = number;
  return arg;
}

wire::GraphArg GraphBuilder::list(std::vector<wire::GraphArg> items) {
  wire::GraphArg arg;
  arg.kind = wire::GraphArg::Kind::kList;
  arg.items = std::move(items);
  return arg;
}

std::vector<std::byte> GraphBuilder::encode() const {
  const Status status = wire::check_graph(graph_);
  TORCH_CHECK_VALUE(status.ok(), "the graph cannot be sent: ", status.message());
  return wire::encode_graph(graph_);
}

}  // namespace rgpu::backend
