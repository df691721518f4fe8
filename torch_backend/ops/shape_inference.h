// Shape inference: what a call returns, asked of PyTorch's Meta key once per distinct call.
//
// Threading: any thread, without the IssueLock: Meta kernels written in Python take the GIL.
// Errors:    whatever the Meta kernel raises for wrong shapes and dtypes, at the call, as on the
// CPU.
#pragma once

#include <ATen/core/stack.h>

#include <memory>
#include <string>

#include "torch_backend/ops/call_key.h"
#include "torch_backend/ops/op_memory.h"

namespace rgpu::backend {

// An entry for the call in the last arguments of `stack`, without key and hash. Where PyTorch has
// no shape function for it, or the shape depends on data, the entry `replies`.
// Meta kernels see `meta_stack` instead, if given: the call with the host tensors whose values they
// read.
[[nodiscard]] std::unique_ptr<OpEntry> infer(const OpInfo& op, const torch::jit::Stack& stack,
                                             const torch::jit::Stack* meta_stack = nullptr);

// The device of the call's tensors, else of its device argument, else the current one. Raises what
// CUDA does where tensors are on several; copy_ alone may go from one to another.
[[nodiscard]] c10::DeviceIndex device_of_call(const OpInfo& op, const torch::jit::Stack& stack);
// A foreach op whose tensors are on several devices, which PyTorch then calls one by one.
[[nodiscard]] bool goes_tensor_by_tensor(const OpInfo& op, const torch::jit::Stack& stack);

// The wire's description of the arguments alone.
[[nodiscard]] wire::OpTemplate describe_arguments(const OpInfo& op, const torch::jit::Stack& stack);
[[nodiscard]] wire::Arg describe_tensor(const at::Tensor& tensor);
// A constant in place of the argument: no tensor, and nothing that goes with a record.
[[nodiscard]] wire::Arg describe_constant(const c10::IValue& value, const c10::Argument& argument);
// Whether a result beside the first has another geometry on some device than on Meta.
[[nodiscard]] bool is_device_dependent(const std::string& op, size_t result);
// Encodes `entry.description` and derives what follows from it and the planned tensors.
void finish_entry(OpEntry& entry);
// A tensor of this geometry as plan and as promise to the server.
[[nodiscard]] TensorPlan plan_of(at::IntArrayRef sizes, at::IntArrayRef strides,
                                 at::ScalarType dtype);
[[nodiscard]] wire::Output promise_of(const TensorPlan& plan);

}  // namespace rgpu::backend
