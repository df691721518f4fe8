// Method: the device in a process without Python (so that nothing here can take the GIL, and only
// ops whose shape functions are C++ are used), against a scripted server; what crosses the network
// is read record by record.
#include "torch_backend/ops/issue.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>

#include "tests/runtime/scripted_server.h"
#include "tests/wire/allocations.h"
#include "torch_backend/aten/registrations.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/hooks.h"
#include "torch_backend/device/storage.h"

namespace rgpu::backend {
namespace {

using wire::Command;

class Issue : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_device();
    register_kernels();
  }

  void SetUp() override {
    Client::get().connect("127.0.0.1:" + std::to_string(server_.port()), 5.0);
    Client::get().set_flush_policy("sync");
    server_.greet();
  }

  // The first `count` records appended so far, frees left out.
  std::vector<testing::ReceivedRecord> sent(size_t count) {
    Client::get().set_flush_policy("per_op");
    std::vector<testing::ReceivedRecord> records = server_.read_records(count);
    std::erase_if(records, [](const auto& record) { return record.is(Command::kFree); });
    return records;
  }

  static at::Tensor device_tensor(at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(c10::Device(kDeviceType, 0)));
  }

  testing::ScriptedServer server_;
};

TEST_F(Issue, EmptySendsNothingUntilItsFirstUse) {
  const at::Tensor x = device_tensor({4, 4});
  EXPECT_EQ(Client::get().stats().records, 0U);
  const at::Tensor y = at::sigmoid(x);
  const auto records = sent(2);
  EXPECT_TRUE(records[0].is(Command::kAllocate));
  EXPECT_EQ(records[0].word(0), 64U);
  EXPECT_EQ(records[1].number, wire::kFirstTemplate);
  EXPECT_EQ(records[1].handles.size(), 2U);
}

TEST_F(Issue, TheSameCallUsesOneTemplateAndAnotherShapeAnother) {
  const at::Tensor x = device_tensor({4, 4});
  const at::Tensor z = device_tensor({2, 8});
  for (int i = 0; i < 3; ++i) (void)at::sigmoid(x);
  (void)at::sigmoid(z);
  EXPECT_EQ(Client::get().stats().templates, 2U);
}

TEST_F(Issue, AScalarsValueTravelsWithTheRecordAndNotInTheTemplate) {
  const at::Tensor x = device_tensor({4});
  (void)at::mul(x, 2.0);
  (void)at::mul(x, 3.0);
  EXPECT_EQ(Client::get().stats().templates, 1U);
  const auto records = sent(3);
  EXPECT_EQ(std::bit_cast<double>(records[1].word(0)), 2.0);
  EXPECT_EQ(std::bit_cast<double>(records[2].word(0)), 3.0);
}

TEST_F(Issue, AliasedArgumentsAreAnotherCallThanDistinctOnes) {
  const at::Tensor x = device_tensor({4});
  const at::Tensor y = device_tensor({4});
  (void)at::add(x, y);
  (void)at::add(x, x);
  EXPECT_EQ(Client::get().stats().templates, 2U);
}

TEST_F(Issue, AViewsOffsetTravelsWithTheRecord) {
  const at::Tensor x = device_tensor({8});
  (void)at::sigmoid(x.slice(0, 2, 6));
  (void)at::sigmoid(x.slice(0, 3, 7));
  EXPECT_EQ(Client::get().stats().templates, 1U);
  const auto records = sent(3);
  EXPECT_EQ(records[1].word(0), 2U);
  EXPECT_EQ(records[2].word(0), 3U);
}

TEST_F(Issue, ASteadyStateAllocatesOnlyPyTorchsOwnObjects) {
  const at::Tensor x = device_tensor({32, 32});
  const auto count = [&](at::Tensor (*op)(const at::Tensor&)) {
    constexpr uint64_t kCalls = 1000;
    for (uint64_t i = 0; i < 4 * kCalls; ++i) (void)op(x);
    const uint64_t before = allocation_count();
    for (uint64_t i = 0; i < kCalls; ++i) (void)op(x);
    return (allocation_count() - before) / kCalls;
  };
  // The storage, the tensor, its version counter and the boxed call's argument stack.
  EXPECT_LE(count([](const at::Tensor& t) { return at::sigmoid(t); }), 4U);
  EXPECT_LE(count([](const at::Tensor& t) { return at::mm(t, t); }), 4U);
  EXPECT_LE(count([](const at::Tensor& t) { return at::mul(t, t); }), 4U);
  EXPECT_EQ(Client::get().stats().waits, 0U);
}

TEST_F(Issue, AStorageTheServerNeverHeardOfIsNotFreedThere) {
  (void)device_tensor({4});
  EXPECT_EQ(Client::get().stats().frees, 0U);
  at::Tensor x = device_tensor({4});
  (void)at::sigmoid(x);
  EXPECT_EQ(Client::get().stats().frees, 1U);  // The result.
  x.reset();
  EXPECT_EQ(Client::get().stats().frees, 2U);
}

TEST_F(Issue, ACpuTensorIsRefusedAndACpuScalarIsTaken) {
  const at::Tensor x = device_tensor({4});
  EXPECT_THROW((void)at::add(x, at::empty({4})), c10::Error);
  EXPECT_NO_THROW((void)at::add(x, at::empty({})));
}

TEST_F(Issue, WrongShapesRaiseAtTheCall) {
  const at::Tensor x = device_tensor({4, 3});
  EXPECT_THROW((void)at::mm(x, x), std::exception);
}

}  // namespace
}  // namespace rgpu::backend
