// Round trips, and every rule from both sides.
#include "wire/graph.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/wire/raw_body.h"
#include "wire/limits.h"

namespace rgpu::wire {
namespace {

using Kind = GraphArg::Kind;

GraphArg value(uint32_t number) { return {Kind::kValue, number, {}, {}}; }

GraphArg constant(ArgKind kind, int64_t integer = 0) {
  GraphArg arg;
  arg.constant.kind = kind;
  arg.constant.integer = integer;
  return arg;
}

GraphArg list(std::vector<GraphArg> items) {
  GraphArg arg;
  arg.kind = Kind::kList;
  arg.items = std::move(items);
  return arg;
}

GraphNode node(std::string name, std::vector<GraphArg> args, uint32_t value_count = 1) {
  GraphNode made;
  made.name = std::move(name);
  made.args = std::move(args);
  made.value_count = value_count;
  return made;
}

// relu(x).view(n * 2, -1) and what split() gives.
Graph small_graph() {
  Graph graph;
  graph.inputs = {GraphInput::kTensor, GraphInput::kInteger};
  graph.nodes = {
      node("aten::relu", {value(0)}),
      node("rgpu::int_mul", {value(1), constant(ArgKind::kInt, 2)}),
      node("aten::view", {value(2), list({value(3), constant(ArgKind::kInt, -1)})}),
      node("aten::split", {value(4), constant(ArgKind::kInt, 2), constant(ArgKind::kNone)}, 3),
  };
  graph.nodes[0].overload = "out";
  graph.nodes[0].schema_hash = std::numeric_limits<uint64_t>::max();
  graph.nodes[0].source = "train.py:12 in step";
  graph.outputs = {{false, 7}, {true, 0}, {false, 0}};
  graph.default_dtype = 7;
  return graph;
}

std::string refusal(const Graph& graph) {
  const Status status = check_graph(graph);
  return status.ok() ? "" : status.message();
}

TEST(Graph, ComesBackAsItWasSent) {
  const Graph graph = small_graph();
  ASSERT_EQ(refusal(graph), "");
  const auto decoded = decode_graph(encode_graph(graph));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
  EXPECT_EQ(*decoded, graph);
}

TEST(Graph, AnEmptyOneIsAGraph) {
  const auto decoded = decode_graph(encode_graph({}));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, Graph{});
}

TEST(Graph, BytesNeedNoAlignment) {
  const auto bytes = encode_graph(small_graph());
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> shifted(shift);
    shifted.insert(shifted.end(), bytes.begin(), bytes.end());
    const auto decoded = decode_graph(std::span(shifted).subspan(shift));
    ASSERT_TRUE(decoded.has_value()) << shift;
    EXPECT_EQ(*decoded, small_graph());
  }
}

TEST(Graph, EveryCutIsRefused) {
  const auto bytes = encode_graph(small_graph());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_graph(std::span(bytes).first(size)).has_value()) << size;
  }
}

TEST(Graph, AValueIsDefinedBeforeItIsUsed) {
  Graph graph = small_graph();
  graph.nodes[0].args[0] = value(2);  // Its own result.
  EXPECT_EQ(refusal(graph), "node 0 (aten::relu): argument 0: value 2 is not defined before it");
  graph.nodes[0].args[0] = value(1);
  EXPECT_EQ(refusal(graph), "");
  graph.nodes[2].args[1].items[0] = value(4);
  EXPECT_EQ(refusal(graph), "node 2 (aten::view): argument 1: value 4 is not defined before it");
}

TEST(Graph, AnOutputIsDefined) {
  Graph graph = small_graph();
  graph.outputs[0].value = 8;
  EXPECT_EQ(refusal(graph), "the output 8 is not defined");
  graph.outputs[0].is_none = true;
  EXPECT_EQ(refusal(graph), "");
}

TEST(Graph, AConstantIsNoTensorAndNothingOfARecord) {
  for (uint8_t kind = 0; kind <= static_cast<uint8_t>(ArgKind::kComplex); ++kind) {
    Graph graph;
    graph.nodes = {node("aten::x", {constant(static_cast<ArgKind>(kind))})};
    if (static_cast<ArgKind>(kind) == ArgKind::kComplex) {
      graph.nodes[0].args[0].constant.reals = {1, 2};
    }
    const bool carried = kind >= static_cast<uint8_t>(ArgKind::kTensor) &&
                         kind <= static_cast<uint8_t>(ArgKind::kScalarBool);
    const bool items = static_cast<ArgKind>(kind) == ArgKind::kTensorList ||
                       static_cast<ArgKind>(kind) == ArgKind::kScalarList;
    EXPECT_EQ(refusal(graph).empty(), !carried && !items) << int{kind};
  }
}

TEST(Graph, NamesAreChecked) {
  Graph graph = small_graph();
  graph.nodes[1].name = "";
  EXPECT_EQ(refusal(graph), "node 1 (): the op has no name");
  graph.nodes[1].name = "aten::\n";
  EXPECT_NE(refusal(graph).find("not printable"), std::string::npos);
  graph.nodes[1].name = std::string(limits::kNameSizeBytesMax + 1, 'a');
  EXPECT_NE(refusal(graph).find("over the limit"), std::string::npos);
}

TEST(Graph, ListsNestAsDeepAsTheLimit) {
  GraphArg arg = value(0);
  for (uint32_t i = 0; i < limits::kArgDepthMax; ++i) arg = list({arg});
  Graph graph;
  graph.inputs = {GraphInput::kTensor};
  graph.nodes = {node("aten::x", {arg})};
  EXPECT_EQ(refusal(graph), "");
  graph.nodes = {node("aten::x", {list({arg})})};
  EXPECT_EQ(refusal(graph), "node 0 (aten::x): argument 0: lists nest deeper than 3");
}

TEST(Graph, CountsAreLimited) {
  Graph graph;
  graph.nodes = {node("aten::x", {}, limits::kGraphValuesMax)};
  EXPECT_EQ(refusal(graph), "");
  graph.nodes.push_back(node("aten::x", {}, 1));
  EXPECT_EQ(refusal(graph), "node 1 (aten::x): over 1048576 values in a graph");
  graph.nodes.assign(limits::kGraphNodesMax + 1, node("aten::x", {}));
  EXPECT_EQ(refusal(graph), "over 65536 nodes");
  graph.nodes.clear();
  graph.inputs.assign(limits::kHandlesPerRecordMax + 1, GraphInput::kTensor);
  EXPECT_EQ(refusal(graph), "over 65536 inputs");
  graph.inputs.clear();
  graph.outputs.assign(limits::kHandlesPerRecordMax + 1, {true, 0});
  EXPECT_EQ(refusal(graph), "over 65536 outputs");
}

TEST(Graph, TheDefaultDtypeIsOne) {
  Graph graph;
  graph.default_dtype = 4;
  EXPECT_EQ(refusal(graph), "4 is no default dtype");
}

// ---- What no encoder writes ---------------------------------------------------------------------

TEST(Graph, AnUnknownInputIsRefused) {
  Builder builder;
  const Part inputs = vector_of<uint8_t>(builder, {0, 3});
  const auto decoded = decode_graph(finish(builder, table(builder, {part(0, inputs)})));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().message(), "graph: an input's kind is unknown");
}

TEST(Graph, AnUnknownArgumentIsRefused) {
  Builder builder;
  const Part arg = table(builder, {scalar<uint8_t>(0, 3)});
  const Part args = Part(builder.CreateVector(std::vector<Part>{arg}).o);
  const Part name = text(builder, "aten::x");
  const Part made = table(builder, {part(0, name), part(3, args)});
  const Part nodes = Part(builder.CreateVector(std::vector<Part>{made}).o);
  const auto decoded = decode_graph(finish(builder, table(builder, {part(1, nodes)})));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().message(),
            "graph: node 0 (aten::x): argument 0: an argument's kind is unknown");
}

// One node a million times over: 4 bytes each on the wire.
TEST(Graph, SharedPartsDoNotUnfold) {
  Builder builder;
  const Part name = text(builder, std::string(200, 'x'));
  const Part made = table(builder, {part(0, name)});
  const Part nodes = Part(builder.CreateVector(std::vector<Part>(1000, made)).o);
  const auto decoded = decode_graph(finish(builder, table(builder, {part(1, nodes)})));
  ASSERT_FALSE(decoded.has_value());
  EXPECT_EQ(decoded.error().message(), "graph: it unfolds into more than was sent");
}

TEST(Graph, OverItsSizeIsRefusedUnread) {
  const std::vector<std::byte> bytes(limits::kGraphSizeBytesMax + 1);
  const auto decoded = decode_graph(bytes);
  ASSERT_FALSE(decoded.has_value());
  EXPECT_NE(decoded.error().message().find("over the limit"), std::string::npos);
}

}  // namespace
}  // namespace rgpu::wire
