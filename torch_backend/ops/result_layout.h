// Result layout: the memory formats that PyTorch's Meta kernels leave to the device.
//
// Threading: any thread; looks at nothing but its arguments.
#pragma once

#include <ATen/core/stack.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// Gives the Meta results of a convolution, or of its backward, the memory format that cuDNN and
// oneDNN choose: channels-last as soon as the input or the weight is. `arguments` are the call's.
void choose_layout(const OpInfo& op, const c10::IValue* arguments, torch::jit::Stack& results);

}  // namespace rgpu::backend
