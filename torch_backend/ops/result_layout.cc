#include "torch_backend/ops/result_layout.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace rgpu::backend {
namespace {

struct Convolution {
  std::string_view name;
  size_t input = 0;    // The argument; the weight is the next one.
  size_t results = 0;  // The first so many have the format.
};

constexpr auto kConvolutions = std::to_array<Convolution>({
    {"aten::convolution", 0, 1},
    {"aten::_convolution", 0, 1},
    {"aten::convolution_overrideable", 0, 1},
    {"aten::convolution_backward", 1, 2},
    {"aten::convolution_backward_overrideable", 1, 2},
});

bool is_channels_last(at::MemoryFormat format) {
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

}  // namespace

void choose_layout(const OpInfo& op, const c10::IValue* arguments, torch::jit::Stack& results) {
  const auto* known = std::find_if(kConvolutions.begin(), kConvolutions.end(),
                                   [&](const Convolution& c) { return c.name == op.name; });
  if (known == kConvolutions.end()) return;
  const at::MemoryFormat input = arguments[known->input].toTensor().suggest_memory_format();
  const at::MemoryFormat weight = arguments[known->input + 1].toTensor().suggest_memory_format();
  if (!is_channels_last(input) && !is_channels_last(weight)) return;
  const at::MemoryFormat format = is_channels_last(input) ? input : weight;
  for (size_t i = 0; i < known->results; ++i) {
    if (!results[i].isTensor() || !results[i].toTensor().defined()) continue;
    results[i].toTensor().unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
}

}  // namespace rgpu::backend
