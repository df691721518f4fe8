// Opaque values, kept graphs, and streams.
#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::OutputKind;

class Graph : public EngineFixture {
 protected:
  // out = x * y, with gradients for both wanted.
  uint32_t define_mul() {
    wire::OpTemplate mul = op("aten::mul", "Tensor",
                              {tensor_arg({2}, kFloat, wire::TensorMeta::kRequiresGrad),
                               tensor_arg({2}, kFloat, wire::TensorMeta::kRequiresGrad)},
                              {new_output({2}), output_of(OutputKind::kOpaque)});
    mul.keeps_graph = true;
    return batch.define(mul);
  }
  uint32_t define_backward(bool retain_graph) {
    return batch.define(op("rgpu::graph_backward", "",
                           {tensor_arg({}), list_arg({tensor_arg({2})}), bool_arg(retain_graph)},
                           {new_output({2}), new_output({2})}));
  }
};

TEST_F(Graph, AnOpaqueValueIsPassedOnAsItIs) {
  const uint32_t neg =
      batch.define(op("aten::neg", "", {tensor_arg({2})}, {output_of(OutputKind::kOpaque)}));
  // Whatever geometry the client believes in: the server knows better.
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({9})}, {new_output({2})}));
  batch.upload<float>(1, {1, -2}).record(neg, {1, 2}).record(relu, {2, 3});
  EXPECT_EQ(fetch<float>(3, 2), (std::vector<float>{0, 2}));
}

TEST_F(Graph, BackwardRunsTheKeptGraph) {
  const uint32_t mul = define_mul();
  const uint32_t backward = define_backward(false);
  batch.upload<float>(1, {2, 3}).upload<float>(2, {5, 7}).upload<float>(3, {1, 10});
  batch.record(mul, {1, 2, 4, 5}).record(backward, {5, 3, 6, 7});
  EXPECT_EQ(fetch<float>(4, 2), (std::vector<float>{10, 21}));
  EXPECT_EQ(fetch<float>(6, 2), (std::vector<float>{5, 70}));
  EXPECT_EQ(fetch<float>(7, 2), (std::vector<float>{2, 30}));
}

TEST_F(Graph, BackwardRunsTwiceOnlyIfTheGraphIsRetained) {
  const uint32_t mul = define_mul();
  const uint32_t retaining = define_backward(true);
  const uint32_t last = define_backward(false);
  batch.upload<float>(1, {2, 3}).upload<float>(2, {5, 7}).upload<float>(3, {1, 10});
  batch.record(mul, {1, 2, 4, 5}).record(retaining, {5, 3, 6, 7}).record(last, {5, 3, 8, 9});
  batch.record(last, {5, 3, 10, 11});
  EXPECT_EQ(fetch<float>(8, 2), (std::vector<float>{5, 70}));
  EXPECT_NE(fetch_error(10).error.message.find("second time"), std::string::npos);
}

TEST_F(Graph, AGradientThatIsNotGivenCountsAsZero) {
  const uint32_t mul = define_mul();
  const uint32_t backward =
      batch.define(op("rgpu::graph_backward", "", {tensor_arg({}), list_arg({none_arg()})},
                      {new_output({2}), output_of(OutputKind::kNone)}));
  batch.upload<float>(1, {2, 3}).record(mul, {1, 1, 4, 5}).record(backward, {5, 6});
  EXPECT_EQ(fetch<float>(6, 2), (std::vector<float>{0, 0}));
}

TEST_F(Graph, TheOutputOfAKeptGraphMayBeChangedInPlace) {
  // exp saves its result for the backward; the client's copy is another.
  wire::OpTemplate forward =
      op("aten::exp", "", {tensor_arg({2}, kFloat, wire::TensorMeta::kRequiresGrad)},
         {new_output({2}), output_of(OutputKind::kOpaque)});
  forward.keeps_graph = true;
  const uint32_t exp = batch.define(forward);
  const uint32_t zero =
      batch.define(op("aten::zero_", "", {tensor_arg({2})}, {output_of(OutputKind::kAlias)}));
  const uint32_t backward =
      batch.define(op("rgpu::graph_backward", "", {tensor_arg({}), list_arg({tensor_arg({2})})},
                      {new_output({2})}));
  batch.upload<float>(1, {0, 0}).upload<float>(2, {1, 3});
  batch.record(exp, {1, 3, 4}).record(zero, {3}).record(backward, {4, 2, 5});
  EXPECT_EQ(fetch<float>(5, 2), (std::vector<float>{1, 3}));
}

TEST_F(Graph, AnLstmGoesWhole) {
  const auto weight = [](std::vector<int64_t> sizes) {
    return tensor_arg(std::move(sizes), kFloat, wire::TensorMeta::kRequiresGrad);
  };
  wire::OpTemplate lstm =
      op("aten::lstm", "input",
         {weight({5, 1, 3}), list_arg({tensor_arg({1, 1, 4}), tensor_arg({1, 1, 4})}),
          list_arg({weight({16, 3}), weight({16, 4}), weight({16}), weight({16})}), bool_arg(true),
          int_arg(1),
          [] {
            wire::Arg arg;
            arg.kind = wire::ArgKind::kDouble;
            return arg;
          }(),
          bool_arg(true), bool_arg(false), bool_arg(false)},
         {new_output({5, 1, 4}), new_output({1, 1, 4}), new_output({1, 1, 4}),
          output_of(OutputKind::kOpaque)});
  lstm.keeps_graph = true;
  const uint32_t forward = batch.define(lstm);
  const uint32_t backward =
      batch.define(op("rgpu::graph_backward", "",
                      {tensor_arg({}), list_arg({tensor_arg({5, 1, 4}), none_arg(), none_arg()})},
                      {new_output({5, 1, 3}), new_output({16, 3}), new_output({16, 4}),
                       new_output({16}), new_output({16})}));
  batch.upload<float>(1, std::vector<float>(15, 0.5f));
  batch.upload<float>(2, std::vector<float>(4, 0)).upload<float>(3, std::vector<float>(4, 0));
  batch.upload<float>(4, std::vector<float>(48, 0.1f))
      .upload<float>(5, std::vector<float>(64, 0.1f));
  batch.upload<float>(6, std::vector<float>(16, 0)).upload<float>(7, std::vector<float>(16, 0));
  batch.upload<float>(8, std::vector<float>(20, 1));
  batch.record(forward, {1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13});
  batch.record(backward, {13, 8, 20, 21, 22, 23, 24});
  const auto out = fetch<float>(10, 20);
  EXPECT_GT(out[0], 0.0f);
  EXPECT_EQ(fetch<float>(11, 4), (std::vector<float>(out.begin() + 16, out.end())));
  EXPECT_NE(fetch<float>(20, 15)[0], 0.0f);
  EXPECT_EQ(fetch<float>(23, 16), fetch<float>(24, 16));
}

// ---- Streams ------------------------------------------------------------------------------------

class Streams : public EngineFixture {};

TEST_F(Streams, ADependencyAcrossStreamsIsKept) {
  const uint32_t add_ =
      batch.define(op("aten::add_", "Tensor", {tensor_arg({3}), tensor_arg({3}), scalar_int_arg()},
                      {output_of(OutputKind::kAlias)}));
  const uint32_t add =
      batch.define(op("aten::add", "Tensor", {tensor_arg({3}), tensor_arg({3}), scalar_int_arg()},
                      {new_output({3})}));
  const Bytes alpha = Bytes().add(int64_t{1});
  batch.upload<float>(1, {0, 0, 0}).upload<float>(2, {1, 1, 1});
  Handle next = 10;
  float expected = 0;
  for (int round = 0; round < 200; ++round) {
    const uint32_t stream = static_cast<uint32_t>(round % 3);
    batch.stream(stream);
    batch.record(add_, {1, 2}, alpha);       // Writes what the others write too.
    batch.record(add, {1, 1, next}, alpha);  // Made here, read and freed elsewhere.
    batch.stream(stream + 1).record(add_, {1, next}, alpha).free(next);
    expected = (expected + 1) * 3;
    if (expected > 1e6f) {
      batch.stream(stream + 2).upload<float>(1, {0, 0, 0});
      expected = 0;
    }
    ++next;
    if (round % 7 == 0) apply(stream);
  }
  EXPECT_EQ(fetch<float>(1, 3), (std::vector<float>(3, expected)));
  EXPECT_FALSE(sync().failed);
}

TEST_F(Streams, SyncWaitsForAllStreams) {
  const uint32_t mm = batch.define(op(
      "aten::mm", "", {tensor_arg({256, 256}), tensor_arg({256, 256})}, {new_output({256, 256})}));
  batch.upload<float>(1, std::vector<float>(256 * 256, 0.001f));
  for (Handle i = 0; i < 20; ++i)
    batch.stream(static_cast<uint32_t>(i % 4)).record(mm, {1, 1, 10 + i});
  EXPECT_FALSE(sync().failed);
  EXPECT_GE(sink.applied(), 1u);
}

}  // namespace
}  // namespace rgpu::server::testing
