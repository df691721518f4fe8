// Host ops: operators of other libraries (torchvision::nms) that no server has. They run on this
// machine: their tensors are copied down and their results up again, with a warning the first time.
//
// Threading: any thread. Cost: one wait for each tensor argument.
// Errors:    PyTorch's NotImplementedError where the library has no CPU kernel either; the kernel's
//            own.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace rgpu::backend {

// Whether the server's PyTorch may have the operator: PyTorch's own namespaces.
[[nodiscard]] bool is_of_pytorch(const c10::OperatorHandle& op);
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace rgpu::backend
