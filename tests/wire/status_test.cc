#include "wire/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace rgpu {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_EQ(status.to_string(), "kOk");
}

TEST(Status, ContextGoesBeforeTheMessageAndKeepsTheCode) {
  const Status status = Status(Code::kDevice, "no memory").with_context("aten::add");
  EXPECT_EQ(status.code(), Code::kDevice);
  EXPECT_EQ(status.message(), "aten::add: no memory");
  EXPECT_EQ(status.to_string(), "kDevice: aten::add: no memory");
}

TEST(Status, ContextLeavesOkAlone) {
  EXPECT_TRUE(Status().with_context("anything").ok());
  EXPECT_EQ(Status().with_context("anything").message(), "");
}

TEST(Status, EveryCodeHasItsName) {
  EXPECT_STREQ(code_name(Code::kOk), "kOk");
  EXPECT_STREQ(code_name(Code::kInvalidArgument), "kInvalidArgument");
  EXPECT_STREQ(code_name(Code::kUnimplemented), "kUnimplemented");
  EXPECT_STREQ(code_name(Code::kExhausted), "kExhausted");
  EXPECT_STREQ(code_name(Code::kDisconnected), "kDisconnected");
  EXPECT_STREQ(code_name(Code::kCancelled), "kCancelled");
  EXPECT_STREQ(code_name(Code::kDevice), "kDevice");
  EXPECT_STREQ(code_name(Code::kInternal), "kInternal");
  EXPECT_STREQ(code_name(static_cast<Code>(200)), "an unknown code");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::unique_ptr<int>> value = std::make_unique<int>(7);
  ASSERT_TRUE(value);
  EXPECT_TRUE(value.error().ok());
  EXPECT_EQ(**value, 7);
  const std::unique_ptr<int> moved = *std::move(value);
  EXPECT_EQ(*moved, 7);

  const Result<int> error = Status(Code::kExhausted, "full");
  EXPECT_FALSE(error);
  EXPECT_EQ(error.error().code(), Code::kExhausted);
}

Status fail_if(bool fail) { return fail ? Status(Code::kCancelled, "stop") : Status(); }

Result<int> seven_unless(bool fail) {
  RGPU_RETURN_IF_ERROR(fail_if(fail));
  return 7;
}

TEST(Result, ReturnIfErrorPassesErrorsOnAlone) {
  EXPECT_EQ(*seven_unless(false), 7);
  EXPECT_EQ(seven_unless(true).error().code(), Code::kCancelled);
}

TEST(ResultDeathTest, ValueOfAnErrorEndsTheProcess) {
  Result<int> error = Status(Code::kInternal, "bug");
  EXPECT_DEATH((void)error.value(), "check failed: value_.has_value");
}

TEST(ResultDeathTest, AnErrorMayNotBeOk) {
  EXPECT_DEATH((void)Result<int>(Status()), "check failed: !error_.ok");
}

TEST(CheckDeathTest, NamesFileLineAndCondition) {
  EXPECT_DEATH(RGPU_CHECK(1 + 1 == 3), "status_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace rgpu
