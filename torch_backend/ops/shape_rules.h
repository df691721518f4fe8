// ShapeRules: ops whose geometry is not asked of PyTorch's Meta kernel, because that refuses what
// the kernels of the devices take.
//
// Threading: any thread. Errors: what the devices' kernels raise for wrong arguments.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

namespace rgpu::backend {

// Replaces a call's arguments, tensors of device meta, by its results.
using ShapeRule = void (*)(torch::jit::Stack&);

// Null for almost every op.
[[nodiscard]] ShapeRule shape_rule_of(std::string_view op) noexcept;

}  // namespace rgpu::backend
