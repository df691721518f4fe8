// Numerics switches hold for the records after them, on every stream, and for nothing before.

#include "wire/switches.h"

#include <ATen/Context.h>

#include "server/torch/switches.h"
#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;
using wire::OutputKind;
using wire::Switches;

Switches defaults() {
  Switches switches;
  switches.flags = Switches::kFillUninitializedMemory | Switches::kCudnnEnabled |
                   Switches::kCudnnAllowTf32 | Switches::kMkldnnEnabled | Switches::kNnpackEnabled |
                   Switches::kSdpFlash | Switches::kSdpMemEfficient | Switches::kSdpMath |
                   Switches::kSdpCudnn | Switches::kSdpOverrideable;
  switches.cudnn_benchmark_limit = 10;
  switches.sdp_priority = {1, 2, 0, 3, 4};
  switches.float32_precision[Switches::kCudaConv] = 2;
  switches.float32_precision[Switches::kCudaRnn] = 2;
  return switches;
}

Switches deterministic() {
  Switches switches = defaults();
  switches.flags |= Switches::kDeterministicAlgorithms;
  return switches;
}

class NumericsSwitches : public EngineFixture {
 protected:
  ~NumericsSwitches() override { apply_switches(defaults()); }  // The process has one set of them.

  void send(const Switches& switches) {
    batch.command(Command::kSwitches, {}, Bytes().add(switches));
  }
  // Which refuses when algorithms have to be deterministic. Changes handle `target`.
  uint32_t define_put() {
    return batch.define(
        op("aten::put_", "",
           {tensor_arg({3}), tensor_arg({1}, kLong), tensor_arg({1}), bool_arg(false)},
           {output_of(OutputKind::kAlias)}));
  }
  void upload_targets() {
    batch.upload<int64_t>(1, {1}).upload<float>(2, {9});
    for (Handle target = 10; target < 13; ++target) batch.upload<float>(target, {0, 0, 0});
  }
};

TEST_F(NumericsSwitches, ReachPyTorchsContext) {
  Switches switches = defaults();
  switches.flags = Switches::kDeterministicAlgorithms | Switches::kDeterministicWarnOnly |
                   Switches::kCudnnBenchmark | Switches::kSdpMath | Switches::kMkldnnDeterministic |
                   Switches::kFp16Accumulation;
  switches.cudnn_benchmark_limit = 77;
  switches.float32_matmul_precision = 2;
  switches.fp16_reduction = 1;
  switches.bf16_reduction = 2;
  switches.sdp_priority = {4, 3, 2, 1, 0};
  switches.float32_precision = {1, 2, 1, 0, 2, 3, 1, 0, 3};
  send(switches);
  apply();
  at::Context& context = at::globalContext();
  EXPECT_TRUE(context.deterministicAlgorithms() && context.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  EXPECT_TRUE(context.benchmarkCuDNN() && context.deterministicMkldnn());
  EXPECT_FALSE(context.userEnabledCuDNN() || context.userEnabledMkldnn());
  EXPECT_TRUE(context.userEnabledMathSDP() && !context.userEnabledFlashSDP());
  EXPECT_TRUE(context.allowFP16AccumulationCuBLAS());
  EXPECT_EQ(context.benchmarkLimitCuDNN(), 77);
  EXPECT_EQ(static_cast<int>(context.allowFP16ReductionCuBLAS()), 1);
  EXPECT_EQ(static_cast<int>(context.allowBF16ReductionCuBLAS()), 2);
  EXPECT_EQ(context.sDPPriorityOrder()[0], at::SDPBackend::overrideable);
  EXPECT_EQ(context.float32MatmulPrecision(), at::Float32MatmulPrecision::MEDIUM);
  const auto precision = [&](at::Float32Backend backend, at::Float32Op op) {
    return static_cast<int>(context.float32Precision(backend, op));
  };
  EXPECT_EQ(precision(at::Float32Backend::CUDA, at::Float32Op::CONV), 1);
  EXPECT_EQ(precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL), 2);
  EXPECT_EQ(precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV), 1);
  EXPECT_EQ(precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL), 3);
  send(defaults());
  apply();
  const at::Context fresh;
  EXPECT_EQ(context.deterministicFillUninitializedMemory(),
            fresh.deterministicFillUninitializedMemory());
  EXPECT_EQ(context.allowTF32CuDNN(), fresh.allowTF32CuDNN());
  EXPECT_EQ(context.float32MatmulPrecision(), fresh.float32MatmulPrecision());
  EXPECT_EQ(
      precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL),
      static_cast<int>(fresh.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL)));
}

TEST_F(NumericsSwitches, HoldForLaterRecordsAlone) {
  const uint32_t put = define_put();
  upload_targets();
  batch.record(put, {10, 1, 2});
  send(deterministic());
  batch.record(put, {11, 1, 2});
  send(defaults());
  batch.record(put, {12, 1, 2});
  apply();
  EXPECT_EQ(fetch<float>(10, 3), (std::vector<float>{0, 9, 0}));
  EXPECT_EQ(fetch<float>(12, 3), (std::vector<float>{0, 9, 0}));
  const wire::RemoteError error = fetch_error(11).error;
  EXPECT_NE(error.message.find("does not have a deterministic implementation"), std::string::npos)
      << error.message;
}

TEST_F(NumericsSwitches, HoldOnEveryStream) {
  const uint32_t put = define_put();
  upload_targets();
  for (uint32_t round = 0; round < 50; ++round) {
    const Handle before = 100 + 2 * round;
    const Handle after = before + 1;
    batch.upload<float>(before, {0, 0, 0}).upload<float>(after, {0, 0, 0});
    batch.stream(1 + round % 3).record(put, {before, 1, 2});
    batch.stream(0);
    send(deterministic());
    batch.stream(1 + (round + 1) % 3).record(put, {after, 1, 2});
    batch.stream(2);
    send(defaults());
  }
  apply();
  for (uint32_t round = 0; round < 50; ++round) {
    const Handle before = 100 + 2 * round;
    EXPECT_EQ(fetch<float>(before, 3), (std::vector<float>{0, 9, 0})) << round;
    (void)fetch_error(before + 1);
  }
}

TEST_F(NumericsSwitches, DenormalsAreFlushedOnEveryThread) {
  const uint32_t mul = batch.define(
      op("aten::mul", "Tensor", {tensor_arg({1}), tensor_arg({1})}, {new_output({1})}));
  batch.upload<float>(1, {1e-40F}).upload<float>(2, {1});
  Switches flushing = defaults();
  flushing.flags |= Switches::kFlushDenormal;
  Handle next = 10;
  for (const bool flushes : {false, true, false}) {
    send(flushes ? flushing : defaults());
    for (uint32_t stream = 0; stream < 3; ++stream) {
      batch.stream(stream).record(mul, {1, 2, next});
      EXPECT_EQ(fetch<float>(next, 1)[0] == 0, flushes) << stream;
      ++next;
    }
  }
}

TEST_F(NumericsSwitches, AValueThatPyTorchCannotHaveEndsTheSession) {
  Switches broken = defaults();
  broken.sdp_priority[0] = 9;
  send(broken);
  apply();
  expect_ended("switches: no order of attention backends");
}

}  // namespace
}  // namespace rgpu::server::testing
