// Graphs that a client stores: loaded, found, called, described, freed; malformed ones.
#include <stdlib.h>

#include <filesystem>
#include <limits>

#include "server/graph_cache.h"
#include "tests/server/engine_fixture.h"
#include "wire/graph.h"

namespace rgpu::server::testing {
namespace {

using wire::ArgKind;
using wire::GraphArg;
using wire::GraphInput;
using wire::OutputKind;

GraphArg value(uint32_t number) {
  GraphArg arg;
  arg.kind = GraphArg::Kind::kValue;
  arg.value = number;
  return arg;
}

GraphArg constant(wire::Arg given) {
  GraphArg arg;
  arg.constant = std::move(given);
  return arg;
}

GraphArg list(std::vector<GraphArg> items) {
  GraphArg arg;
  arg.kind = GraphArg::Kind::kList;
  arg.items = std::move(items);
  return arg;
}

wire::GraphNode node(std::string name, std::string overload, std::vector<GraphArg> args,
                     uint32_t value_count = 1) {
  return {std::move(name), std::move(overload), 0, std::move(args), value_count, "model.py:12"};
}

// Of `inputs`; the outputs are the given values.
std::vector<std::byte> encoded(std::vector<GraphInput> inputs, std::vector<wire::GraphNode> nodes,
                               std::vector<uint32_t> outputs) {
  wire::Graph graph;
  graph.inputs = std::move(inputs);
  graph.nodes = std::move(nodes);
  for (const uint32_t output : outputs) graph.outputs.push_back({false, output});
  return wire::encode_graph(graph);
}

const GraphInput kTensor = GraphInput::kTensor;

// relu(x * y) + 1, which writes it to x as well.
std::vector<std::byte> some_graph() {
  wire::Arg one;
  one.kind = ArgKind::kInt;
  one.integer = 1;
  return encoded(
      {kTensor, kTensor},
      {node("aten::mul", "Tensor", {value(0), value(1)}), node("aten::relu", "", {value(2)}),
       node("aten::add", "Tensor", {value(3), constant(one), constant(one)}),
       node("aten::copy_", "", {value(0), value(4), constant(bool_arg(false))})},
      {4});
}

class StoredGraphs : public EngineFixture {
 protected:
  explicit StoredGraphs(const TorchEngineOptions& options = {.threads = 1})
      : EngineFixture(options) {}

  static wire::Output opaque() { return output_of(OutputKind::kOpaque); }
  wire::Reply load(const std::vector<std::byte>& bytes, Handle graph) {
    const auto size = static_cast<int64_t>(bytes.size());
    wire::OpTemplate load =
        op("rgpu::graph_load", "", {tensor_arg({size}, 0), none_arg(), int_arg(0)}, {opaque()});
    load.replies = true;
    const uint32_t number = batch.define(load);
    batch.upload_bytes(900, bytes);
    batch.record(number, {900, graph}, Bytes().add(uint64_t{50}));
    batch.free(900);
    apply();
    return sink.take(50).reply;
  }
  wire::Reply find(const std::string& hash, Handle graph) {
    wire::Arg name;
    name.kind = ArgKind::kString;
    name.text = hash;
    wire::OpTemplate find = op("rgpu::graph_find", "", {name, none_arg(), int_arg(0)}, {opaque()});
    find.replies = true;
    const uint32_t number = batch.define(find);
    batch.record(number, {graph}, Bytes().add(uint64_t{51}));
    apply();
    return sink.take(51).reply;
  }
  // Of float32[size] tensors, the first of which may be written to.
  uint32_t define_call(size_t inputs, std::vector<int64_t> sizes, bool writes = false,
                       size_t outputs = 1) {
    std::vector<wire::Arg> tensors(inputs, tensor_arg(sizes));
    wire::Arg written;
    written.kind = ArgKind::kBoolList;
    written.integers.assign(inputs, 0);
    if (writes) written.integers[0] = 1;
    wire::Arg numbers;
    numbers.kind = ArgKind::kScalarList;
    return batch.define(
        op("rgpu::graph_call", "",
           {tensor_arg({1}, 0), list_arg(std::move(tensors)), numbers, written, bool_arg(false)},
           std::vector<wire::Output>(outputs, new_output(sizes))));
  }
  // Of a graph that cannot be loaded: why.
  std::string refusal(const std::vector<std::byte>& bytes) {
    const wire::Reply reply = load(bytes, 800);
    EXPECT_TRUE(reply.failed);
    batch.free(800);
    return reply.error.message;
  }
};

TEST_F(StoredGraphs, ACallRunsTheGraphAndWritesItsInput) {
  EXPECT_FALSE(load(some_graph(), 1).failed);
  const uint32_t call = define_call(2, {2}, /*writes=*/true);
  batch.upload<float>(2, {2, -3}).upload<float>(3, {5, 7}).record(call, {1, 2, 3, 4});
  EXPECT_EQ(fetch<float>(4, 2), (std::vector<float>{11, 1}));
  EXPECT_EQ(fetch<float>(2, 2), (std::vector<float>{11, 1}));
  batch.record(call, {1, 2, 3, 5});
  EXPECT_EQ(fetch<float>(5, 2), (std::vector<float>{56, 8}));
}

TEST_F(StoredGraphs, InputsAndViewsThatAreReturnedAreCopies) {
  const auto bytes =
      encoded({kTensor}, {node("aten::t", "", {value(0)}), node("aten::detach", "", {value(0)})},
              {0, 1, 2});
  EXPECT_FALSE(load(bytes, 1).failed);
  const uint32_t call = define_call(1, {2, 2}, false, 3);
  const uint32_t zero =
      batch.define(op("aten::zero_", "", {tensor_arg({2, 2})}, {output_of(OutputKind::kAlias)}));
  batch.upload<float>(2, {1, 2, 3, 4}).record(call, {1, 2, 3, 4, 5}).record(zero, {2});
  EXPECT_EQ(fetch<float>(3, 4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(fetch<float>(4, 4), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(fetch<float>(5, 4), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(StoredGraphs, AFailedCallPoisonsResultsAndWhatItWrites) {
  const auto bytes =
      encoded({kTensor, kTensor},
              {node("aten::mm", "", {value(0), value(1)}),
               node("aten::copy_", "", {value(0), value(2), constant(bool_arg(false))})},
              {2});
  EXPECT_FALSE(load(bytes, 1).failed);
  const uint32_t call = define_call(2, {2}, /*writes=*/true);
  batch.upload<float>(2, {1, 2}).upload<float>(3, {1, 2}).record(call, {1, 2, 3, 4});
  const std::string message = fetch_error(4).error.message;
  EXPECT_NE(message.find("in the graph's aten::mm, from model.py:12"), std::string::npos)
      << message;
  EXPECT_TRUE(fetch_error(2).failed);
  EXPECT_EQ(fetch<float>(3, 2), (std::vector<float>{1, 2}));
}

TEST_F(StoredGraphs, IntegersAreComputed) {
  // x.expand(n * 2 // 3, 2): n comes with the call.
  wire::Arg two = int_arg(2);
  const auto bytes =
      encoded({kTensor, GraphInput::kInteger},
              {node("rgpu::int_mul", "", {value(1), constant(two)}),
               node("rgpu::int_floordiv", "", {value(2), constant(int_arg(3))}),
               node("aten::expand", "",
                    {value(0), list({value(3), constant(two)}), constant(bool_arg(false))}),
               node("aten::clone", "", {value(4), constant(none_arg())})},
              {5});
  EXPECT_FALSE(load(bytes, 1).failed);
  wire::Arg written;
  written.kind = ArgKind::kBoolList;
  written.integers = {0};
  wire::Arg numbers;
  numbers.kind = ArgKind::kScalarList;
  numbers.items = {scalar_int_arg()};
  const auto define = [&](std::vector<int64_t> sizes) {
    return batch.define(
        op("rgpu::graph_call", "",
           {tensor_arg({1}, 0), list_arg({tensor_arg({2})}), numbers, written, bool_arg(false)},
           {new_output(std::move(sizes))}));
  };
  const uint32_t call = define({3, 2});
  batch.upload<float>(2, {1, 2}).record(call, {1, 2, 3}, Bytes().add(int64_t{5}));
  EXPECT_EQ(fetch<float>(3, 6), (std::vector<float>{1, 2, 1, 2, 1, 2}));
  batch.record(call, {1, 2, 4}, Bytes().add(std::numeric_limits<int64_t>::max()));
  EXPECT_NE(fetch_error(4).error.message.find("a size overflows"), std::string::npos);
}

TEST_F(StoredGraphs, RandomNodesDrawAsOpsOfTheirOwn) {
  // Two dropouts over three elements: the second one's offset is 8 further.
  const wire::Arg half = [] {
    wire::Arg arg;
    arg.kind = ArgKind::kDouble;
    arg.real = 0.5;
    return arg;
  }();
  const auto dropout = [&] {
    return node("aten::native_dropout", "", {value(0), constant(half), constant(bool_arg(true))},
                2);
  };
  EXPECT_FALSE(load(encoded({kTensor}, {dropout(), dropout()}, {1, 3}), 1).failed);
  wire::Arg written;
  written.kind = ArgKind::kBoolList;
  written.integers = {0};
  wire::Arg numbers;
  numbers.kind = ArgKind::kScalarList;
  wire::OpTemplate call =
      op("rgpu::graph_call", "",
         {tensor_arg({1}, 0), list_arg({tensor_arg({3})}), numbers, written, bool_arg(false)},
         {new_output({3}), new_output({3})});
  call.random = true;
  wire::OpTemplate alone =
      op("aten::native_dropout", "", {tensor_arg({3}), scalar_double_arg(), bool_arg(true)},
         {new_output({3}), new_output({3}, 11)});
  alone.random = true;
  const uint32_t graph_call = batch.define(call);
  const uint32_t op_alone = batch.define(alone);
  batch.upload<float>(2, {1, 2, 3});
  batch.record(graph_call, {1, 2, 3, 4}, Bytes().add(uint64_t{7}).add(uint64_t{16}));
  batch.record(op_alone, {2, 5, 6}, Bytes().add(0.5).add(uint64_t{7}).add(uint64_t{16}));
  batch.record(op_alone, {2, 7, 8}, Bytes().add(0.5).add(uint64_t{7}).add(uint64_t{24}));
  EXPECT_EQ(fetch<float>(3, 3), fetch<float>(5, 3));
  EXPECT_EQ(fetch<float>(4, 3), fetch<float>(7, 3));
}

TEST_F(StoredGraphs, WhatIsRefusedNamesTheNode) {
  EXPECT_NE(refusal({std::byte{1}, std::byte{2}}).find("graph: "), std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor}, {node("aten::no_such_op", "", {value(0)})}, {1}))
                .find("node 0 (aten::no_such_op, model.py:12): the server's PyTorch has no op"),
            std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor}, {node("torchvision::nms", "", {value(0)})}, {1}))
                .find("is not in a callable namespace"),
            std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor}, {node("aten::relu", "", {value(0), value(0)})}, {1}))
                .find("node 0 (aten::relu, model.py:12): 2 arguments where the schema has 1"),
            std::string::npos);
  wire::GraphNode other = node("aten::relu", "", {value(0)});
  other.schema_hash = 5;
  EXPECT_NE(refusal(encoded({kTensor}, {other}, {1})).find("the schema of aten::relu"),
            std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor}, {node("rgpu::int_cube", "", {value(0)})}, {1}))
                .find("the server has no such op"),
            std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor}, {node("aten::relu", "", {list({value(0)})})}, {1}))
                .find("argument 'self'"),
            std::string::npos);
  EXPECT_NE(refusal(encoded({kTensor},
                            {node("aten::relu", "", {value(0)}),
                             node("aten::sum", "dim_IntList",
                                  {value(1), constant(bool_arg(true)), constant(bool_arg(true)),
                                   constant(none_arg())})},
                            {2}))
                .find("node 1 (aten::sum.dim_IntList, model.py:12): argument 'dim'"),
            std::string::npos);
}

TEST_F(StoredGraphs, AWrongNumberOfValuesOrInputsFailsTheCall) {
  EXPECT_FALSE(load(encoded({kTensor}, {node("aten::relu", "", {value(0)}, 2)}, {1}), 1).failed);
  const uint32_t call = define_call(1, {2});
  batch.upload<float>(2, {1, 2}).record(call, {1, 2, 3});
  EXPECT_NE(fetch_error(3).error.message.find("it returned 1 values, not 2"), std::string::npos);
  EXPECT_FALSE(load(some_graph(), 10).failed);
  batch.record(call, {10, 2, 4});
  EXPECT_NE(fetch_error(4).error.message.find("the graph takes 2 inputs"), std::string::npos);
}

TEST_F(StoredGraphs, StateAndMemoryOfAGraph) {
  wire::OpTemplate state = op("rgpu::graph_state", "", {tensor_arg({1}, 0)}, {});
  state.replies = true;
  const uint32_t ask = batch.define(state);
  const auto bytes = some_graph();
  EXPECT_FALSE(load(bytes, 1).failed);
  const uint32_t call = define_call(2, {2}, true);
  batch.upload<float>(2, {2, -3}).upload<float>(3, {5, 7}).record(call, {1, 2, 3, 4});
  batch.record(ask, {1}, Bytes().add(uint64_t{60}));
  apply();
  const wire::Reply reply = sink.take(60).reply;
  ASSERT_EQ(reply.values.size(), 7u);
  EXPECT_EQ(reply.values[0].integer, 0);  // Interpreting.
  EXPECT_EQ(reply.values[1].integer, 1);
  EXPECT_EQ(reply.values[3].integer, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(reply.values[6].text, "");
  const auto allocated = [&] {
    batch.command(wire::Command::kMemory, {}, Bytes().add(uint64_t{61}).add(uint32_t{0}));
    apply();
    return sink.take(61).reply.values[0].integer;
  };
  const int64_t with = allocated();
  batch.free(1);
  EXPECT_GE(with - allocated(), static_cast<int64_t>(bytes.size()));
}

TEST_F(StoredGraphs, AHandleWithoutAGraphCannotBeCalled) {
  const wire::Reply reply = find(std::string(64, 'a'), 1);
  ASSERT_EQ(reply.values.size(), 1u);
  EXPECT_EQ(reply.values[0].integer, 0);
  const uint32_t call = define_call(1, {2});
  batch.upload<float>(2, {1, 2}).record(call, {1, 2, 3});
  EXPECT_NE(fetch_error(3).error.message.find("the handle holds no graph"), std::string::npos);
}

TEST_F(StoredGraphs, AGraphWhereATensorIsDueEndsTheSession) {
  EXPECT_FALSE(load(some_graph(), 1).failed);
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({1}, 0)}, {new_output({1})}));
  batch.record(relu, {1, 2});
  apply();
  expect_ended("a graph is no tensor");
}

class MalformedGraphCalls : public StoredGraphs,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(MalformedGraphCalls, EndTheSession) {
  const std::string name = std::string("rgpu::") + GetParam();
  wire::OpTemplate wrong = op(name, "", {int_arg(1)}, {new_output({2})});
  batch.define(wrong);
  apply();
  expect_ended(name);
}
INSTANTIATE_TEST_SUITE_P(Builtins, MalformedGraphCalls,
                         ::testing::Values("graph_find", "graph_load", "graph_call",
                                           "graph_state"));

// ---- On disk ------------------------------------------------------------------------------------

std::string temporary_folder() {
  std::string name = ::testing::TempDir() + "rgpu-graphs-XXXXXX";
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  return name;
}

TorchEngineOptions with_cache(const std::string& folder) {
  TorchEngineOptions options;
  options.threads = 1;
  options.graph_cache = folder;
  return options;
}

class KeptGraphs : public StoredGraphs {
 protected:
  KeptGraphs() : KeptGraphs(temporary_folder()) {}
  explicit KeptGraphs(const std::string& folder)
      : StoredGraphs(with_cache(folder)), folder_(folder) {}
  ~KeptGraphs() override { std::filesystem::remove_all(folder_); }
  const std::string folder_;
};

TEST_F(KeptGraphs, AreFoundByTheirHash) {
  const std::string hash = sha256_hex(some_graph());
  EXPECT_EQ(find(hash, 1).values[0].integer, 0);
  EXPECT_FALSE(load(some_graph(), 2).failed);
  EXPECT_EQ(find(hash, 3).values[0].integer, 1);
  const uint32_t call = define_call(2, {2}, true);
  batch.upload<float>(4, {2, -3}).upload<float>(5, {5, 7}).record(call, {3, 4, 5, 6});
  EXPECT_EQ(fetch<float>(6, 2), (std::vector<float>{11, 1}));
}

TEST_F(KeptGraphs, OtherBytesThanTheHashSaysAreNotTaken) {
  const std::string hash = sha256_hex(some_graph());
  const std::string path = folder_ + "/graphs/" + hash + ".graph";
  ASSERT_TRUE(write_whole_file(path, encoded({kTensor}, {node("aten::neg", "", {value(0)})}, {1})));
  EXPECT_EQ(find(hash, 1).values[0].integer, 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace rgpu::server::testing
