// What a call's arguments must be beyond what PyTorch's shape functions look at.
//
// Threading: any thread, without the IssueLock. Cost: once per distinct call.
#pragma once

#include <ATen/core/ivalue.h>

#include "torch_backend/ops/op_info.h"

namespace rgpu::backend {

// Throws what the CPU raises: writes into memory that overlaps itself, products of different
// dtypes, an op in place that would have to make its tensor larger.
void check_arguments(const OpInfo& op, const c10::IValue* arguments);

}  // namespace rgpu::backend
