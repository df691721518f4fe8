// Errors that nobody can ask for any more: the next reply, whatever it is to, tells them once.

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;
using wire::OutputKind;

class LostErrors : public EngineFixture {
 protected:
  LostErrors() {
    select_ =
        batch.define(op("aten::index_select", "",
                        {tensor_arg({3}), int_arg(0), tensor_arg({1}, kLong)}, {new_output({1})}));
    relu_ = batch.define(op("aten::relu", "", {tensor_arg({1})}, {new_output({1})}));
    batch.upload<float>(1, {1, 2, 3}).upload<int64_t>(2, {7}).upload<float>(9, {4});
  }
  void fail(Handle result, uint32_t location = 41) {
    batch.record(select_, {1, 2, result}, {}, location);
  }
  // Reading what is fine raises the error that was lost; reading it again does not.
  void expect_lost(uint32_t location) {
    const wire::Reply told = fetch_error(9);
    EXPECT_EQ(told.error.location, location);
    EXPECT_EQ(told.error.type, wire::ErrorType::kIndexError);
    EXPECT_NE(told.error.message.find("an earlier op"), std::string::npos) << told.error.message;
    EXPECT_NE(told.error.message.find("ask again"), std::string::npos) << told.error.message;
  }
  void expect_fine() { EXPECT_EQ(fetch<float>(9, 1), (std::vector<float>{4})); }

  uint32_t select_ = 0;
  uint32_t relu_ = 0;
};

TEST_F(LostErrors, AFreedResultsErrorIsToldByTheNextFetchOnce) {
  fail(3);
  batch.free(3);
  expect_lost(41);
  expect_fine();
  EXPECT_FALSE(sync().failed);
}

TEST_F(LostErrors, WhileSomethingPoisonedIsAliveNothingElseTells) {
  fail(3);
  batch.record(relu_, {3, 4}).free(3);
  expect_fine();
  batch.free(4);
  expect_lost(41);
  expect_fine();
}

TEST_F(LostErrors, WhatWasToldIsNotLost) {
  fail(3);
  (void)fetch_error(3);
  batch.free(3);
  expect_fine();
}

TEST_F(LostErrors, EachIsToldByAWaitOfItsOwnOldestFirst) {
  fail(3, 41);
  fail(4, 42);
  fail(5, 43);
  batch.free(5).free(3);
  expect_lost(41);
  expect_lost(43);
  expect_fine();
  EXPECT_EQ(sync().error.location, 42u);
}

TEST_F(LostErrors, ThoseOfOneLineAreToldOnce) {
  for (Handle result = 3; result < 8; ++result) fail(result, 41);
  for (Handle result = 3; result < 8; ++result) batch.free(result);
  expect_lost(41);
  expect_fine();
  EXPECT_FALSE(sync().failed);
}

TEST_F(LostErrors, AnOpThatRepliesTellsThem) {
  wire::OpTemplate item = op("aten::_local_scalar_dense", "", {tensor_arg({1})}, {});
  item.replies = true;
  const uint32_t number = batch.define(item);
  fail(3);
  batch.free(3)
      .record(number, {9}, Bytes().add(uint64_t{6}))
      .record(number, {9}, Bytes().add(uint64_t{8}));
  apply();
  EXPECT_EQ(sink.take(6).reply.error.location, 41u);
  const wire::Reply again = sink.take(8).reply;
  ASSERT_EQ(again.values.size(), 1u);
  EXPECT_EQ(again.values[0].real, 4.0);
}

TEST_F(LostErrors, AQueryOfMemoryTellsThem) {
  fail(3);
  batch.free(3).command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(uint32_t{0}));
  apply();
  EXPECT_EQ(sink.take(9).reply.error.location, 41u);
}

TEST_F(LostErrors, APoisonedTensorThatWasOverwrittenLosesItsError) {
  fail(3);
  batch.upload<float>(3, {8});
  expect_lost(41);
  EXPECT_EQ(fetch<float>(3, 1), (std::vector<float>{8}));
}

TEST_F(LostErrors, AFetchOfAPoisonedHandleTellsThatOne) {
  fail(3, 41);
  fail(4, 42);
  batch.free(3);
  apply();
  EXPECT_EQ(fetch_error(4).error.location, 42u);
  expect_lost(41);
}

}  // namespace
}  // namespace rgpu::server::testing
