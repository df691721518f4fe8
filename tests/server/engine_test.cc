// Ops, errors and memory, on the engine alone.

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;
using wire::OutputKind;

class Engine : public EngineFixture {
 protected:
  uint32_t define_add() {
    return batch.define(op("aten::add", "Tensor",
                           {tensor_arg({3}), tensor_arg({3}), scalar_int_arg()},
                           {new_output({3})}));
  }
  uint32_t define_relu_() {
    return batch.define(op("aten::relu_", "", {tensor_arg({3})}, {output_of(OutputKind::kAlias)}));
  }
  // Fails when an index is out of range.
  uint32_t define_index_select() {
    return batch.define(op("aten::index_select", "",
                           {tensor_arg({3}), int_arg(0), tensor_arg({1}, kLong)},
                           {new_output({1})}));
  }
};
const Bytes kAlphaOne = Bytes().add(int64_t{1});

TEST_F(Engine, UploadsComputesAndFetches) {
  const uint32_t add = define_add();
  batch.upload<float>(1, {1, 2, 3}).upload<float>(2, {10, 20, 30});
  batch.record(add, {1, 2, 3}, Bytes().add(int64_t{3}));
  apply();
  EXPECT_EQ(sink.applied(), 1u);
  EXPECT_EQ(fetch<float>(3, 3), (std::vector<float>{31, 62, 93}));
}

TEST_F(Engine, ChangesInPlaceAndThroughOffsets) {
  wire::Arg middle = tensor_arg({1});
  middle.tensor.flags = wire::TensorMeta::kHasOffset;
  const uint32_t zero =
      batch.define(op("aten::zero_", "", {middle}, {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3});
  batch.record(zero, {1}, Bytes().add(int64_t{1}));
  EXPECT_EQ(fetch<float>(1, 3), (std::vector<float>{1, 0, 3}));
}

TEST_F(Engine, HostScalarsTakeNoPartInTypePromotion) {
  wire::Arg scalar;
  scalar.kind = wire::ArgKind::kHostScalar;
  scalar.tensor = meta({}, 7);  // A double that was a Python number.
  scalar.tensor.flags = wire::TensorMeta::kWrappedNumber;
  const uint32_t mul =
      batch.define(op("aten::mul", "Tensor", {tensor_arg({3}), scalar}, {new_output({3})}));
  batch.upload<float>(1, {1, 2, 3});
  batch.record(mul, {1, 2}, Bytes().add(2.5).add(uint64_t{0}));
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{2.5, 5, 7.5}));
}

TEST_F(Engine, AViewOpsResultGetsAStorageOfItsOwn) {
  const uint32_t t = batch.define(op("aten::t", "", {tensor_arg({2, 3})}, {new_output({3, 2})}));
  const uint32_t alias = batch.define(op("aten::alias", "", {tensor_arg({6})}, {new_output({6})}));
  const uint32_t zero =
      batch.define(op("aten::zero_", "", {tensor_arg({6})}, {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3, 4, 5, 6});
  batch.record(t, {1, 2}).record(alias, {1, 3}).record(zero, {1});
  EXPECT_EQ(fetch<float>(2, 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(fetch<float>(3, 6), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(fetch<float>(1, 6), (std::vector<float>(6, 0)));
}

TEST_F(Engine, OtherStridesAreCopiedIntoPlace) {
  wire::Output transposed = new_output({2, 2});
  transposed.meta.strides = {1, 2};
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({2, 2})}, {transposed}));
  batch.upload<float>(1, {1, 2, 3, 4}).record(relu, {1, 2});
  EXPECT_EQ(fetch<float>(2, 4), (std::vector<float>{1, 3, 2, 4}));
}

TEST_F(Engine, ABrokenPromiseOfShapePoisons) {
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({3})}, {new_output({4})}));
  batch.upload<float>(1, {1, 2, 3}).record(relu, {1, 2});
  apply();
  const wire::Reply reply = fetch_error(2);
  EXPECT_NE(reply.error.message.find("promised float32[4], got float32[3]"), std::string::npos)
      << reply.error.message;
  EXPECT_EQ(reply.error.op, "aten::relu");
}

TEST_F(Engine, AFailurePoisonsWhatDependsOnItAndNothingElse) {
  const uint32_t select = define_index_select();
  const uint32_t relu = batch.define(op("aten::relu", "", {tensor_arg({1})}, {new_output({1})}));
  batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {7});
  batch.record(select, {1, 2, 3}, {}, 41).record(relu, {3, 4}, {}, 42);
  apply();
  const wire::Reply reply = fetch_error(4);
  EXPECT_EQ(reply.error.type, wire::ErrorType::kIndexError);
  EXPECT_EQ(reply.error.code, Code::kDevice);
  EXPECT_EQ(reply.error.op, "aten::index_select");
  EXPECT_EQ(reply.error.arguments, "float32[3], int64[1]");
  EXPECT_EQ(reply.error.location, 41u);
  EXPECT_NE(reply.error.message.find("index out of range"), std::string::npos);
  EXPECT_EQ(fetch<float>(1, 3), (std::vector<float>{1, 2, 3}));
  EXPECT_FALSE(sink.failure().has_value());
}

TEST_F(Engine, SyncTellsAnErrorOnceAndOnlyIfNobodyDid) {
  const uint32_t select = define_index_select();
  batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {7});
  batch.record(select, {1, 2, 3}).record(select, {1, 2, 4});
  apply();
  (void)fetch_error(3);
  EXPECT_TRUE(sync().failed);  // Of handle 4.
  EXPECT_FALSE(sync().failed);
}

TEST_F(Engine, AFailedInPlaceOpPoisonsItsTarget) {
  const uint32_t copy =
      batch.define(op("aten::index_copy_", "",
                      {tensor_arg({3}), int_arg(0), tensor_arg({1}, kLong), tensor_arg({1})},
                      {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {9}).upload<float>(3, {5});
  batch.record(copy, {1, 2, 3});
  apply();
  EXPECT_EQ(fetch_error(1).error.op, "aten::index_copy_");
  EXPECT_EQ(fetch<float>(3, 1), (std::vector<float>{5}));
}

TEST_F(Engine, AnUploadOfTheWholeStorageCures) {
  const uint32_t select = define_index_select();
  batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {9}).record(select, {1, 2, 3});
  apply();
  (void)fetch_error(3);
  batch.upload<float>(3, {8});
  EXPECT_EQ(fetch<float>(3, 1), (std::vector<float>{8}));
}

TEST_F(Engine, APoisonedInputPoisonsTheInPlaceTarget) {
  const uint32_t select = define_index_select();
  const uint32_t add_ =
      batch.define(op("aten::add_", "Tensor", {tensor_arg({1}), tensor_arg({1}), scalar_int_arg()},
                      {output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {9}).record(select, {1, 2, 3});
  batch.upload<float>(4, {1}).record(add_, {4, 3}, kAlphaOne);
  apply();
  EXPECT_EQ(fetch_error(4).error.op, "aten::index_select");
}

TEST_F(Engine, RandomOpsReplayTheSameNumbers) {
  wire::OpTemplate bernoulli =
      op("aten::native_dropout", "", {tensor_arg({64}), scalar_double_arg(), bool_arg(true)},
         {new_output({64}), new_output({64}, 11)});
  bernoulli.random = true;
  const uint32_t number = batch.define(bernoulli);
  batch.upload<float>(1, std::vector<float>(64, 1));
  const auto draw = [](uint64_t seed, uint64_t offset) {
    return Bytes().add(0.5).add(seed).add(offset);
  };
  batch.record(number, {1, 2, 3}, draw(42, 0)).record(number, {1, 4, 5}, draw(42, 4));
  batch.record(number, {1, 6, 7}, draw(42, 0)).record(number, {1, 8, 9}, draw(43, 0));
  const auto first = fetch<float>(2, 64);
  EXPECT_EQ(fetch<float>(6, 64), first);
  EXPECT_NE(fetch<float>(4, 64), first);
  EXPECT_NE(fetch<float>(8, 64), first);
}

TEST_F(Engine, UnknownGeometryComesWithTheReply) {
  wire::OpTemplate nonzero =
      op("aten::nonzero", "", {tensor_arg({4})}, {output_of(OutputKind::kUnknown)});
  nonzero.replies = true;
  const uint32_t number = batch.define(nonzero);
  batch.upload<float>(1, {0, 5, 0, 6}).record(number, {1, 2}, Bytes().add(uint64_t{77}));
  apply();
  const wire::Reply reply = sink.take(77).reply;
  ASSERT_EQ(reply.metas.size(), 1u);
  EXPECT_EQ(reply.metas[0].sizes, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(reply.metas[0].dtype, kLong);
  EXPECT_EQ(fetch<int64_t>(2, 2), (std::vector<int64_t>{1, 3}));
}

wire::OpTemplate bin_edges(size_t handles_reserved) {
  wire::OpTemplate edges =
      op("aten::_histogramdd_bin_edges", "",
         {tensor_arg({2, 2}), int_list_arg({1, 3}), none_arg(), none_arg(), bool_arg(false)}, {});
  edges.outputs.resize(handles_reserved, output_of(OutputKind::kUnknown));
  edges.replies = true;
  return edges;
}

TEST_F(Engine, AListMayBeShorterThanTheHandlesReservedForIt) {
  const uint32_t number = batch.define(bin_edges(4));
  batch.upload<float>(1, {0, 0, 2, 3}).record(number, {1, 2, 3, 4, 5}, Bytes().add(uint64_t{7}));
  apply();
  const wire::Reply reply = sink.take(7).reply;
  ASSERT_EQ(reply.metas.size(), 2u);
  EXPECT_EQ(reply.metas[0].sizes, (std::vector<int64_t>{2}));
  EXPECT_EQ(reply.metas[1].sizes, (std::vector<int64_t>{4}));
  EXPECT_EQ(fetch<float>(2, 2), (std::vector<float>{0, 2}));
  EXPECT_EQ(fetch<float>(3, 4), (std::vector<float>{0, 1, 2, 3}));
}

TEST_F(Engine, AListLongerThanTheHandlesReservedForItFails) {
  const uint32_t number = batch.define(bin_edges(1));
  batch.upload<float>(1, {0, 0, 2, 3}).record(number, {1, 2}, Bytes().add(uint64_t{7}));
  apply();
  const wire::Reply reply = sink.take(7).reply;
  ASSERT_TRUE(reply.failed);
  EXPECT_NE(reply.error.message.find("the op returned 2 tensors"), std::string::npos);
}

TEST_F(Engine, AListOfTensorsMayHoldHostScalars) {
  wire::Arg host;
  host.kind = wire::ArgKind::kHostScalar;
  host.tensor = meta({});
  const uint32_t number = batch.define(
      op("aten::_foreach_mul", "List",
         {list_arg({tensor_arg({2}), tensor_arg({2})}), list_arg({tensor_arg({2}), host})},
         {new_output({2}), new_output({2})}));
  Bytes ten;
  ten.add(10.0F).add(0.0F).add(0.0F).add(0.0F);  // 16 bytes, zero padded.
  batch.upload<float>(1, {1, 2}).upload<float>(2, {3, 4}).record(number, {1, 2, 1, 3, 4}, ten);
  apply();
  EXPECT_EQ(fetch<float>(3, 2), (std::vector<float>{1, 4}));
  EXPECT_EQ(fetch<float>(4, 2), (std::vector<float>{30, 40}));
}

TEST_F(Engine, NonTensorResultsComeAsValues) {
  wire::OpTemplate equal = op("aten::equal", "", {tensor_arg({3}), tensor_arg({3})}, {});
  equal.replies = true;
  wire::OpTemplate item = op("aten::_local_scalar_dense", "", {tensor_arg({})}, {});
  item.replies = true;
  const uint32_t equal_number = batch.define(equal);
  const uint32_t item_number = batch.define(item);
  batch.upload<float>(1, {1, 2, 3}).upload<float>(2, {1, 2, 3});
  batch.record(equal_number, {1, 2}, Bytes().add(uint64_t{5}));
  batch.record(item_number, {2}, Bytes().add(uint64_t{6}));
  apply();
  const wire::Reply same = sink.take(5).reply;
  ASSERT_EQ(same.values.size(), 1u);
  EXPECT_EQ(same.values[0].kind, wire::ArgKind::kBool);
  EXPECT_EQ(same.values[0].integer, 1);
  const wire::Reply value = sink.take(6).reply;
  ASSERT_EQ(value.values.size(), 1u);
  EXPECT_EQ(value.values[0].kind, wire::ArgKind::kDouble);
  EXPECT_EQ(value.values[0].real, 1.0);
}

TEST_F(Engine, AFailedOpThatRepliesTellsItselfAndNotTheNextSync) {
  wire::OpTemplate bincount =
      op("aten::bincount", "", {tensor_arg({1}, kLong), none_arg(), int_arg(0)},
         {output_of(OutputKind::kUnknown)});
  bincount.replies = true;
  const uint32_t number = batch.define(bincount);
  batch.upload<int64_t>(1, {-1}).record(number, {1, 2}, Bytes().add(uint64_t{6}));
  apply();
  EXPECT_TRUE(sink.take(6).reply.failed);
  EXPECT_FALSE(sync().failed);
}

TEST_F(Engine, AFactorizationIntoOutTensorsHasNoSiblings) {
  const uint32_t inv =
      batch.define(op("aten::linalg_inv_ex", "inverse",
                      {tensor_arg({2, 2}), bool_arg(false), tensor_arg({2, 2}), tensor_arg({}, 3)},
                      {output_of(OutputKind::kAlias), output_of(OutputKind::kAlias)}));
  batch.upload<float>(1, {2, 0, 0, 4}).allocate(2, 16).allocate(3, 4).record(inv, {1, 2, 3});
  EXPECT_EQ(fetch<float>(2, 4), (std::vector<float>{0.5, 0, 0, 0.25}));
}

TEST_F(Engine, MemoryIsCountedAndFreed) {
  const auto figures = [this] {
    batch.command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(uint32_t{0}));
    apply();
    return sink.take(9).reply.values;
  };
  batch.allocate(1, 1000).allocate(2, 500);
  EXPECT_EQ(figures()[0].integer, 1500);
  batch.free(1);
  const auto values = figures();
  ASSERT_EQ(values.size(), 12u);
  EXPECT_EQ(values[0].integer, 500);
  EXPECT_EQ(values[1].integer, 1500);
  EXPECT_GT(values[2].integer, 0);
  EXPECT_GT(values[3].integer, values[2].integer);
  EXPECT_EQ(values[4].integer, 1500);  // In all, and freed again; and the same in storages.
  EXPECT_EQ(values[5].integer, 1000);
  EXPECT_EQ(values[6].integer, 1);
  EXPECT_EQ(values[7].integer, 2);
}

TEST_F(Engine, AnAllocationThatFailsPoisonsTheHandle) {
  batch.allocate(1, uint64_t{1} << 46);
  apply();
  EXPECT_EQ(fetch_error(1).error.type, wire::ErrorType::kOutOfMemoryError);
  EXPECT_FALSE(sink.failure().has_value());
}

TEST_F(Engine, ResizeKeepsTheCommonPrefix) {
  batch.upload<float>(1, {1, 2, 3});
  batch.command(Command::kResize, {1}, Bytes().add(uint64_t{8}));
  EXPECT_EQ(fetch<float>(1, 2), (std::vector<float>{1, 2}));
  batch.command(Command::kResize, {1}, Bytes().add(uint64_t{16}));
  EXPECT_EQ(fetch<float>(1, 2), (std::vector<float>{1, 2}));
}

TEST_F(Engine, TemplatesAreForgottenAndNumberedAnew) {
  (void)define_add();
  batch.command(Command::kForgetTemplates, {});
  apply();
  const uint32_t relu_ = define_relu_();
  EXPECT_EQ(relu_, wire::kFirstTemplate);
  batch.upload<float>(1, {-1, 2, -3}).record(relu_, {1});
  EXPECT_EQ(fetch<float>(1, 3), (std::vector<float>{0, 2, 0}));
}

TEST_F(Engine, AFreedHandleMayBeUsedAgain) {
  batch.upload<float>(1, {1}).free(1).upload<float>(1, {2});
  EXPECT_EQ(fetch<float>(1, 1), (std::vector<float>{2}));
}

}  // namespace
}  // namespace rgpu::server::testing
