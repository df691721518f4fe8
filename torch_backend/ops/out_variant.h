// Out variants whose results' sizes only the server knows (nonzero, masked_select, histogram … with
// out=): the functional variant is called, which waits once, and its results go into the out
// arguments, resized as PyTorch resizes them.
//
// Threading: any thread, without the IssueLock.
// Errors:    those of the functional variant; another dtype than the result's, as on the CPU;
//            NotImplementedError where PyTorch has no functional variant.
#pragma once

#include <ATen/core/stack.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// Replaces the call's arguments on the stack by its results.
void call_out_variant(const OpInfo& op, torch::jit::Stack* stack);

}  // namespace rgpu::backend
