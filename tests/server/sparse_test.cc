// Sparse arguments and results, on the engine alone.

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::ArgKind;
using wire::OutputKind;

constexpr int64_t kCoo = 1;  // c10::Layout's numbers.
constexpr int64_t kCsr = 2;

// A float32 matrix of 2 rows and 3 columns with `nnz` elements.
wire::Arg coo_arg(int64_t nnz, bool coalesced) {
  wire::Arg arg = list_arg({tensor_arg({2, nnz}, kLong), tensor_arg({nnz})});
  arg.kind = ArgKind::kSparse;
  arg.tensor = {kFloat, 0, {2, 3}, {0, 0}};
  arg.integers = {kCoo, coalesced ? 1 : 0};
  return arg;
}

class Sparse : public EngineFixture {
 protected:
  wire::OpTemplate coalesce() {
    wire::OpTemplate asking =
        op("aten::_coalesce", "", {coo_arg(3, false)}, {output_of(OutputKind::kAnyLayout)});
    asking.replies = true;
    return asking;
  }
  uint32_t define_to_dense() {
    return batch.define(op("aten::_to_dense", "", {coo_arg(3, false), none_arg(), none_arg()},
                           {new_output({2, 3})}));
  }
};

TEST_F(Sparse, ArgumentsArriveAsComponents) {
  const uint32_t to_dense = define_to_dense();
  batch.upload<int64_t>(1, {0, 1, 1, 2, 0, 0}).upload<float>(2, {3, 4, 5});
  batch.record(to_dense, {1, 2, 3});
  EXPECT_EQ(fetch<float>(3, 6), (std::vector<float>{0, 0, 3, 9, 0, 0}));
}

TEST_F(Sparse, ResultsOfAnyLayoutAreTold) {
  const uint32_t number = batch.define(coalesce());
  batch.upload<int64_t>(1, {0, 1, 1, 2, 0, 0}).upload<float>(2, {3, 4, 5});
  batch.record(number, {1, 2, 10, 11, 12}, Bytes().add(uint64_t{77}));
  apply();
  const wire::Reply reply = sink.take(77).reply;
  ASSERT_EQ(reply.results.size(), 1u);
  const wire::Arg& result = reply.results[0];
  EXPECT_EQ(result.kind, ArgKind::kSparse);
  EXPECT_EQ(result.tensor, (wire::TensorMeta{kFloat, 0, {2, 3}, {0, 0}}));
  EXPECT_EQ(result.integers, (std::vector<int64_t>{kCoo, 1}));
  ASSERT_EQ(result.items.size(), 2u);
  EXPECT_EQ(result.items[0].tensor, meta({2, 2}, kLong));
  EXPECT_EQ(result.items[1].tensor, meta({2}));
  EXPECT_EQ(fetch<int64_t>(10, 4), (std::vector<int64_t>{0, 1, 2, 0}));
  EXPECT_EQ(fetch<float>(11, 2), (std::vector<float>{3, 9}));
  batch.free(10).free(11).free(12);  // The third stands for nothing, but it is a handle.
  EXPECT_FALSE(sync().failed);
}

TEST_F(Sparse, ResultsOfAKnownFormAreBoundByComponent) {
  const uint32_t number =
      batch.define(op("aten::_to_sparse_csr", "", {tensor_arg({2, 2}), none_arg()},
                      {new_output({3}, kLong), new_output({3}, kLong), new_output({3})}));
  batch.upload<float>(1, {1, 0, 2, 3});
  batch.record(number, {1, 2, 3, 4});
  EXPECT_EQ(fetch<int64_t>(2, 3), (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(fetch<int64_t>(3, 3), (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(fetch<float>(4, 3), (std::vector<float>{1, 2, 3}));
}

TEST_F(Sparse, IndicesOutOfRangePoisonTheResult) {
  const uint32_t to_dense = define_to_dense();
  batch.upload<int64_t>(1, {0, 1, 1, 2, 0, 9}).upload<float>(2, {3, 4, 5});
  batch.record(to_dense, {1, 2, 3});
  EXPECT_NE(fetch_error(3).error.message.find("found index 9"), std::string::npos);
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{3, 4, 5}));
}

TEST_F(Sparse, CompressedIndicesOutOfRangeAreRefused) {
  wire::Arg csr = list_arg({tensor_arg({3}, kLong), tensor_arg({3}, kLong), tensor_arg({3})});
  csr.kind = ArgKind::kSparse;
  csr.tensor = {kFloat, 0, {2, 3}, {0, 0}};
  csr.integers = {kCsr, 0};
  const uint32_t to_dense =
      batch.define(op("aten::_to_dense", "", {csr, none_arg(), none_arg()}, {new_output({2, 3})}));
  batch.upload<int64_t>(1, {0, 1, 3}).upload<int64_t>(2, {2, 0, 1}).upload<float>(3, {1, 2, 3});
  batch.record(to_dense, {1, 2, 3, 4});
  EXPECT_EQ(fetch<float>(4, 6), (std::vector<float>{0, 0, 1, 2, 3, 0}));
  batch.upload<int64_t>(5, {0, 1, 300});
  batch.record(to_dense, {5, 2, 3, 6});
  EXPECT_TRUE(fetch_error(6).failed);
}

TEST_F(Sparse, AFailedCallWithAReplyLeavesItsArguments) {
  wire::OpTemplate asking =
      op("aten::add_", "Tensor", {coo_arg(3, false), tensor_arg({2, 3}), scalar_int_arg()},
         {output_of(OutputKind::kAnyLayout)});
  asking.replies = true;
  const uint32_t number = batch.define(asking);
  batch.upload<int64_t>(1, {0, 1, 1, 2, 0, 0}).upload<float>(2, {3, 4, 5});
  batch.upload<float>(3, {1, 1, 1, 1, 1, 1});
  batch.record(number, {1, 2, 3, 10, 11, 12}, Bytes().add(int64_t{1}).add(uint64_t{77}));
  apply();
  EXPECT_TRUE(sink.take(77).reply.failed);
  EXPECT_EQ(fetch<float>(2, 3), (std::vector<float>{3, 4, 5}));
  EXPECT_TRUE(fetch_error(10).failed);
}

TEST_F(Sparse, ComponentsLieWithinTheirStorages) {
  const uint32_t to_dense = define_to_dense();
  batch.upload<int64_t>(1, {0, 1, 1, 2}).upload<float>(2, {3, 4, 5});
  batch.record(to_dense, {1, 2, 3});
  apply();
  expect_ended("int64[2, 3] at offset 0 is outside its storage of 32 bytes");
}

}  // namespace
}  // namespace rgpu::server::testing
