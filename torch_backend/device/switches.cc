#include "torch_backend/device/switches.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
namespace {

using wire::Switches;

struct Toggle {
  uint32_t flag;
  bool (at::Context::*get)() const;
};
constexpr auto kToggles = std::to_array<Toggle>({
    {Switches::kDeterministicAlgorithms, &at::Context::deterministicAlgorithms},
    {Switches::kDeterministicWarnOnly, &at::Context::deterministicAlgorithmsWarnOnly},
    {Switches::kFillUninitializedMemory, &at::Context::deterministicFillUninitializedMemory},
    {Switches::kCudnnEnabled, &at::Context::userEnabledCuDNN},
    {Switches::kCudnnBenchmark, &at::Context::benchmarkCuDNN},
    {Switches::kCudnnDeterministic, &at::Context::deterministicCuDNN},
    {Switches::kMkldnnEnabled, &at::Context::userEnabledMkldnn},
    {Switches::kMkldnnDeterministic, &at::Context::deterministicMkldnn},
    {Switches::kNnpackEnabled, &at::Context::userEnabledNNPACK},
    {Switches::kSdpFlash, &at::Context::userEnabledFlashSDP},
    {Switches::kSdpMemEfficient, &at::Context::userEnabledMemEfficientSDP},
    {Switches::kSdpMath, &at::Context::userEnabledMathSDP},
    {Switches::kSdpCudnn, &at::Context::userEnabledCuDNNSDP},
    {Switches::kSdpOverrideable, &at::Context::userEnabledOverrideableSDP},
    {Switches::kSdpMathReducedPrecision, &at::Context::allowFP16BF16ReductionMathSDP},
    {Switches::kFp16Accumulation, &at::Context::allowFP16AccumulationCuBLAS},
    {Switches::kCpuFp16Reduction, &at::Context::allowFP16ReductionCPU},
});

struct Float32Place {
  at::Float32Backend backend;
  at::Float32Op op;
};
using enum at::Float32Backend;
using enum at::Float32Op;
// In the order of Switches::float32_precision.
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
// What kernels ask for; the others only lend their values to these.
struct Product {
  uint8_t use;
  Float32Place place;
};
constexpr std::array<Product, 6> kProducts = {{
    {kUsesMatmul, {CUDA, MATMUL}},
    {kUsesMatmul, {MKLDNN, MATMUL}},
    {kUsesConv, {CUDA, CONV}},
    {kUsesConv, {MKLDNN, CONV}},
    {kUsesRnn, {CUDA, RNN}},
    {kUsesRnn, {MKLDNN, RNN}},
}};

at::Float32Precision precision_of(const at::Context& context, const Float32Place& place) {
  return context.float32Precision(place.backend, place.op);
}

uint8_t number_of(at::Float32Precision precision) {
  const auto number = static_cast<uint8_t>(precision);
  return number <= Switches::kFloat32PrecisionMax ? number : 0;
}

// PyTorch refuses to tell the older switches once newer ones say something they cannot express.
// What kernels look at are the newer ones; the older are then told as close to them as they get.
template <typename Told, typename Get>
Told told_or(Told otherwise, Get get) {
  try {
    return static_cast<Told>(get());
  } catch (const c10::Error&) {
    return otherwise;
  }
}

bool denormals_are_flushed() {
  volatile float denormal = 1e-40F;
  return denormal * 1.0F == 0.0F;
}

bool names_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

}  // namespace

// Too much costs some nanoseconds, too little a wrong result: what is not known to use nothing
// looks.
uint8_t switch_use(const c10::OperatorHandle& op) {
  const std::string_view name = op.operator_name().name;
  const bool plain = op.hasTag(at::Tag::pointwise) || name.starts_with("aten::_foreach_") ||
                     name.starts_with("aten::_fused_ada") || name.starts_with("aten::_fused_sgd");
  if (plain) return kUsesNone;
  for (const std::string_view copies : {"aten::copy_", "aten::clone", "aten::cat", "aten::fill_",
                                        "aten::zero_", "aten::sum", "aten::mean"}) {
    if (name == copies) return kUsesNone;
  }
  uint8_t use = kUsesContext;
  if (names_any(name, {"mm", "mv", "matmul", "dot", "linear", "attention", "linalg", "cdist",
                       "lstm", "gru", "rnn", "euclidean", "cholesky", "triangular", "conv"})) {
    use |= kUsesMatmul;
  }
  if (names_any(name, {"conv"})) use |= kUsesConv;
  if (names_any(name, {"lstm", "gru", "rnn"})) use |= kUsesRnn;
  return use;
}

std::atomic<bool> SwitchWatch::stale_{true};

SwitchWatch& SwitchWatch::get() {
  static auto* watch = new SwitchWatch();  // Leaked: ops may run while statics are destroyed.
  return *watch;
}

SwitchWatch::SwitchWatch()
    : flush_denormal_(false), defaults_(read(at::Context())), sent_(defaults_) {
  flush_denormal_ = denormals_are_flushed();
}

void SwitchWatch::note_flush_denormal(bool on) noexcept {
  flush_denormal_.store(on, std::memory_order_relaxed);
  mark_stale();
}

Switches SwitchWatch::read(const at::Context& context) const {
  Switches switches;
  for (const Toggle& toggle : kToggles) {
    if ((context.*toggle.get)()) switches.flags |= toggle.flag;
  }
  if (flush_denormal_.load(std::memory_order_relaxed)) switches.flags |= Switches::kFlushDenormal;
  for (size_t i = 0; i < kFloat32Places.size(); ++i) {
    switches.float32_precision[i] = number_of(precision_of(context, kFloat32Places[i]));
  }
  constexpr auto kTf32 = static_cast<uint8_t>(at::Float32Precision::TF32);
  const bool cudnn_tf32 = switches.float32_precision[Switches::kCudaConv] == kTf32;
  if (told_or(cudnn_tf32, [&] { return context.allowTF32CuDNN(); })) {
    switches.flags |= Switches::kCudnnAllowTf32;
  }
  const bool matmul_tf32 = switches.float32_precision[Switches::kCudaMatmul] == kTf32;
  switches.float32_matmul_precision =
      told_or<uint8_t>(matmul_tf32 ? 1 : 0, [&] { return context.float32MatmulPrecision(); });
  switches.cudnn_benchmark_limit = static_cast<uint32_t>(std::clamp<int>(
      context.benchmarkLimitCuDNN(), 0, static_cast<int>(Switches::kBenchmarkLimitMax)));
  switches.fp16_reduction = static_cast<uint8_t>(context.allowFP16ReductionCuBLAS());
  switches.bf16_reduction = static_cast<uint8_t>(context.allowBF16ReductionCuBLAS());
  static_assert(at::num_sdp_backends == static_cast<int>(Switches::kSdpBackends));
  const auto order = const_cast<at::Context&>(context).sDPPriorityOrder();  // Not const, and is.
  for (size_t i = 0; i < order.size(); ++i) {
    switches.sdp_priority[i] = static_cast<uint8_t>(order[i]);
  }
  return switches;
}

bool SwitchWatch::may_have_changed(uint8_t use) const {
  const at::Context& context = at::globalContext();
  if (std::memcmp(seen_.data(), static_cast<const void*>(&context), seen_.size()) != 0) return true;
  if (use <= kUsesContext) return false;
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if ((use & kProducts[i].use) != 0 &&
        precision_of(context, kProducts[i].place) != seen_precisions_[i]) {
      return true;
    }
  }
  return false;
}

void SwitchWatch::remember() {
  const at::Context& context = at::globalContext();
  std::memcpy(seen_.data(), static_cast<const void*>(&context), seen_.size());
  for (size_t i = 0; i < kProducts.size(); ++i) {
    seen_precisions_[i] = precision_of(context, kProducts[i].place);
  }
}

void SwitchWatch::check(uint8_t use, uint32_t generation) {
  if (generation != generation_) {
    generation_ = generation;
    sent_ = defaults_;
    mark_stale();
  }
  const bool stale = stale_.load(std::memory_order_relaxed) && stale_.exchange(false);
  if (!stale && !may_have_changed(use)) [[likely]]
    return;
  remember();
  const Switches now = read(at::globalContext());
  if (now == sent_) return;
  try {
    Client::get().append(wire::Command::kSwitches, current_stream(current_device()), {},
                         std::as_bytes(std::span(&now, 1)));
  } catch (...) {
    mark_stale();
    throw;
  }
  sent_ = now;
}

}  // namespace rgpu::backend
