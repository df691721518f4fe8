#include "server/torch/switches.h"

#include <ATen/Context.h>

#include <array>
#include <vector>

namespace rgpu::server {
namespace {

using wire::Switches;

struct Toggle {
  uint32_t flag;
  void (at::Context::*set)(bool);
};
constexpr auto kToggles = std::to_array<Toggle>({
    {Switches::kFillUninitializedMemory, &at::Context::setDeterministicFillUninitializedMemory},
    {Switches::kCudnnEnabled, &at::Context::setUserEnabledCuDNN},
    {Switches::kCudnnBenchmark, &at::Context::setBenchmarkCuDNN},
    {Switches::kCudnnDeterministic, &at::Context::setDeterministicCuDNN},
    {Switches::kCudnnAllowTf32, &at::Context::setAllowTF32CuDNN},
    {Switches::kMkldnnEnabled, &at::Context::setUserEnabledMkldnn},
    {Switches::kMkldnnDeterministic, &at::Context::setDeterministicMkldnn},
    {Switches::kNnpackEnabled, &at::Context::setUserEnabledNNPACK},
    {Switches::kSdpFlash, &at::Context::setSDPUseFlash},
    {Switches::kSdpMemEfficient, &at::Context::setSDPUseMemEfficient},
    {Switches::kSdpMath, &at::Context::setSDPUseMath},
    {Switches::kSdpCudnn, &at::Context::setSDPUseCuDNN},
    {Switches::kSdpOverrideable, &at::Context::setSDPUseOverrideable},
    {Switches::kSdpMathReducedPrecision, &at::Context::setAllowFP16BF16ReductionMathSDP},
    {Switches::kFp16Accumulation, &at::Context::setAllowFP16AccumulationCuBLAS},
    {Switches::kCpuFp16Reduction, &at::Context::setAllowFP16ReductionCPU},
});

// In the order of Switches::float32_precision: an `all` before what it covers.
struct Float32Place {
  at::Float32Backend backend;
  at::Float32Op op;
};
using enum at::Float32Backend;
using enum at::Float32Op;
constexpr std::array<Float32Place, Switches::kFloat32Count> kFloat32Places = {{
    {GENERIC, ALL},
    {CUDA, ALL},
    {CUDA, CONV},
    {CUDA, RNN},
    {CUDA, MATMUL},
    {MKLDNN, ALL},
    {MKLDNN, CONV},
    {MKLDNN, RNN},
    {MKLDNN, MATMUL},
}};
constexpr std::array kFloat32Precisions = {at::Float32Precision::NONE, at::Float32Precision::IEEE,
                                           at::Float32Precision::TF32, at::Float32Precision::BF16};
constexpr std::array kMatmulPrecisions = {"highest", "high", "medium"};

template <typename Set>
void if_possible(Set set) {
  try {
    set();
  } catch (const c10::Error&) {  // This PyTorch was built without it.
  }
}

// Splits at::CuBLASReductionOption as its setters want it.
bool allows_reduced(uint8_t option) { return option == 0; }
bool allows_split_k(uint8_t option) { return option != 2; }

}  // namespace

void apply_switches(const Switches& switches) {
  at::Context& context = at::globalContext();
  const auto has = [&](uint32_t flag) { return (switches.flags & flag) != 0; };
  context.setDeterministicAlgorithms(has(Switches::kDeterministicAlgorithms),
                                     has(Switches::kDeterministicWarnOnly));
  for (const Toggle& toggle : kToggles) {
    if_possible([&] { (context.*toggle.set)(has(toggle.flag)); });
  }
  context.setBenchmarkLimitCuDNN(static_cast<int>(switches.cudnn_benchmark_limit));
  context.setAllowFP16ReductionCuBLAS(allows_reduced(switches.fp16_reduction),
                                      allows_split_k(switches.fp16_reduction));
  context.setAllowBF16ReductionCuBLAS(allows_reduced(switches.bf16_reduction),
                                      allows_split_k(switches.bf16_reduction));
  if_possible([&] {
    context.setSDPPriorityOrder({switches.sdp_priority.begin(), switches.sdp_priority.end()});
  });
  // The older switches set newer ones too, so they come first.
  if_possible([&] {
    context.setFloat32MatmulPrecision(kMatmulPrecisions[switches.float32_matmul_precision]);
  });
  for (size_t i = 0; i < kFloat32Places.size(); ++i) {
    if_possible([&] {
      context.setFloat32Precision(kFloat32Places[i].backend, kFloat32Places[i].op,
                                  kFloat32Precisions[switches.float32_precision[i]]);
    });
  }
}

void flush_denormal_here(bool on) {
  static thread_local bool flushes = false;
  if (flushes == on) [[likely]]
    return;
  at::globalContext().setFlushDenormal(on);
  flushes = on;
}

}  // namespace rgpu::server
