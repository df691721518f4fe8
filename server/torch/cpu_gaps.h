// CpuGaps: calls that CUDA's kernels take and the CPU's refuse, so that a program written for the
// one runs on a server of the other kind.
//
// Threading: pure functions. Errors: what the op raises.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace rgpu::server {

// Calls the op on the CPU with what is on the stack, as CUDA would.
using GapFiller = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Null for almost every op.
[[nodiscard]] GapFiller cpu_gap_filler(std::string_view op, std::string_view overload) noexcept;

}  // namespace rgpu::server
