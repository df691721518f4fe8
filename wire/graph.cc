#include "wire/graph.h"

#include "rgpu_generated.h"
#include "wire/limits.h"
#include "wire/tables.h"

namespace rgpu::wire {
namespace {

using Kind = GraphArg::Kind;

// A table costs its encoder at least this much: a reference to it and one to its layout.
constexpr size_t kTableSizeBytesMin = 8;

bool may_be_constant(ArgKind kind) {
  switch (kind) {
    case ArgKind::kNone:
    case ArgKind::kBool:
    case ArgKind::kInt:
    case ArgKind::kDouble:
    case ArgKind::kString:
    case ArgKind::kDevice:
    case ArgKind::kIntList:
    case ArgKind::kDoubleList:
    case ArgKind::kBoolList:
    case ArgKind::kComplex:
      return true;
    default:
      return false;
  }
}

// `defined`: how many values there are before the node.
Status check_arg(const GraphArg& arg, uint32_t defined, uint32_t depth) {
  if (depth > limits::kArgDepthMax) {
    return invalid("lists nest deeper than " + std::to_string(limits::kArgDepthMax));
  }
  switch (arg.kind) {
    case Kind::kConstant:
      if (!may_be_constant(arg.constant.kind)) return invalid("a constant's kind is not allowed");
      return check_arg(arg.constant, 0);
    case Kind::kValue:
      if (arg.value < defined) return {};
      return invalid("value " + std::to_string(arg.value) + " is not defined before it");
    case Kind::kList:
      for (const GraphArg& item : arg.items) {
        RGPU_RETURN_IF_ERROR(check_arg(item, defined, depth + 1));
      }
      return {};
  }
  return invalid("an argument's kind is unknown");
}

Status check_node(const GraphNode& node, uint32_t defined) {
  RGPU_RETURN_IF_ERROR(check_op_name(node.name, node.overload));
  RGPU_RETURN_IF_ERROR(
      check_size("the program line", node.source.size(), limits::kStringSizeBytesMax));
  if (node.value_count > limits::kGraphValuesMax - defined) {
    return invalid("over " + std::to_string(limits::kGraphValuesMax) + " values in a graph");
  }
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (Status status = check_arg(node.args[i], defined, 0); !status) {
      return status.with_context("argument " + std::to_string(i));
    }
  }
  return {};
}

flatbuffers::Offset<fb::GraphArg> pack_arg(flatbuffers::FlatBufferBuilder& builder,
                                           const GraphArg& arg) {
  std::vector<flatbuffers::Offset<fb::GraphArg>> items;
  items.reserve(arg.items.size());
  for (const GraphArg& item : arg.items) items.push_back(pack_arg(builder, item));
  flatbuffers::Offset<fb::Arg> constant;
  if (arg.constant != Arg{}) constant = pack(builder, arg.constant);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::GraphArg>>> list;
  if (!items.empty()) list = builder.CreateVector(items);
  return fb::CreateGraphArg(builder, static_cast<fb::GraphArgKind>(arg.kind), arg.value, constant,
                            list);
}

flatbuffers::Offset<fb::GraphNode> pack_node(flatbuffers::FlatBufferBuilder& builder,
                                             const GraphNode& node) {
  std::vector<flatbuffers::Offset<fb::GraphArg>> args;
  args.reserve(node.args.size());
  for (const GraphArg& arg : node.args) args.push_back(pack_arg(builder, arg));
  const auto name = pack(builder, node.name);
  const auto overload = pack(builder, node.overload);
  const auto source = pack(builder, node.source);
  return fb::CreateGraphNode(builder, name, overload, node.schema_hash, builder.CreateVector(args),
                             node.value_count, source);
}

bool unpack(const fb::GraphArg& table, GraphArg& arg, UnpackBudget& budget) {
  if (!budget.take(kTableSizeBytesMin)) return false;
  arg.kind = static_cast<Kind>(table.kind());
  arg.value = table.value();
  if (table.constant() != nullptr && !unpack(*table.constant(), arg.constant, budget)) return false;
  if (table.items() == nullptr) return true;
  for (const fb::GraphArg* item : *table.items()) {
    if (!unpack(*item, arg.items.emplace_back(), budget)) return false;
  }
  return true;
}

bool unpack(const fb::GraphNode& table, GraphNode& node, UnpackBudget& budget) {
  if (!budget.take(kTableSizeBytesMin) || !unpack(table.name(), node.name, budget) ||
      !unpack(table.overload(), node.overload, budget) ||
      !unpack(table.source(), node.source, budget)) {
    return false;
  }
  node.schema_hash = table.schema_hash();
  node.value_count = table.value_count();
  if (table.args() == nullptr) return true;
  for (const fb::GraphArg* arg : *table.args()) {
    if (!unpack(*arg, node.args.emplace_back(), budget)) return false;
  }
  return true;
}

bool unpack(const fb::Graph& table, Graph& graph, UnpackBudget& budget) {
  std::vector<uint8_t> inputs;
  std::vector<int32_t> outputs;
  if (!unpack(table.inputs(), inputs, budget) || !unpack(table.outputs(), outputs, budget)) {
    return false;
  }
  for (const uint8_t input : inputs) graph.inputs.push_back(static_cast<GraphInput>(input));
  for (const int32_t value : outputs) {
    graph.outputs.push_back({value < 0, value < 0 ? 0 : static_cast<uint32_t>(value)});
  }
  graph.default_dtype = table.default_dtype();
  if (table.nodes() == nullptr) return true;
  for (const fb::GraphNode* node : *table.nodes()) {
    if (!unpack(*node, graph.nodes.emplace_back(), budget)) return false;
  }
  return true;
}

}  // namespace

Status check_graph(const Graph& graph) {
  RGPU_RETURN_IF_ERROR(check_default_dtype(graph.default_dtype));
  if (graph.inputs.size() > limits::kHandlesPerRecordMax) {
    return invalid("over " + std::to_string(limits::kHandlesPerRecordMax) + " inputs");
  }
  for (const GraphInput input : graph.inputs) {
    if (input > GraphInput::kFloat) return invalid("an input's kind is unknown");
  }
  if (graph.nodes.size() > limits::kGraphNodesMax) {
    return invalid("over " + std::to_string(limits::kGraphNodesMax) + " nodes");
  }
  auto defined = static_cast<uint32_t>(graph.inputs.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (Status status = check_node(graph.nodes[i], defined); !status) {
      return status.with_context("node " + std::to_string(i) + " (" + graph.nodes[i].name + ")");
    }
    defined += graph.nodes[i].value_count;
  }
  if (graph.outputs.size() > limits::kHandlesPerRecordMax) {
    return invalid("over " + std::to_string(limits::kHandlesPerRecordMax) + " outputs");
  }
  for (const GraphOutput& output : graph.outputs) {
    if (output.is_none || output.value < defined) continue;
    return invalid("the output " + std::to_string(output.value) + " is not defined");
  }
  return {};
}

std::vector<std::byte> encode_graph(const Graph& graph) {
  RGPU_CHECK(check_graph(graph).ok());
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<fb::GraphNode>> nodes;
  nodes.reserve(graph.nodes.size());
  for (const GraphNode& node : graph.nodes) nodes.push_back(pack_node(builder, node));
  std::vector<uint8_t> inputs;
  for (const GraphInput input : graph.inputs) inputs.push_back(static_cast<uint8_t>(input));
  std::vector<int32_t> outputs;
  for (const GraphOutput& output : graph.outputs) {
    outputs.push_back(output.is_none ? -1 : static_cast<int32_t>(output.value));
  }
  const auto packed_inputs = builder.CreateVector(inputs);
  const auto packed_nodes = builder.CreateVector(nodes);
  const auto packed_outputs = builder.CreateVector(outputs);
  builder.Finish(
      fb::CreateGraph(builder, packed_inputs, packed_nodes, packed_outputs, graph.default_dtype));
  return finished_bytes(builder);
}

Result<Graph> decode_graph(std::span<const std::byte> bytes) {
  RGPU_RETURN_IF_ERROR(check_size("graph", bytes.size(), limits::kGraphSizeBytesMax));
  auto body = VerifiedBody<fb::Graph>::open(bytes, "graph");
  if (!body) return body.error();
  Graph graph;
  UnpackBudget budget(bytes.size());
  if (!unpack(*body->table(), graph, budget)) {
    return invalid("graph: it unfolds into more than was sent");
  }
  if (Status status = check_graph(graph); !status) return status.with_context("graph");
  return graph;
}

}  // namespace rgpu::wire
