// Graph calls: ops that go over whole, forward as one record and backward as one record, because
// only the server knows what its kernel saves in between: attention, LSTM, GRU and RNN.
//
// The forward record asks the server to keep its autograd graph under a handle; the backward record
// runs that graph. The handle is freed with the backward node.
//
// What the server's graph cannot do (second derivatives, forward-mode AD), the op's composite does
// (composite.h); second derivatives of a call that drew numbers are refused.
//
// Threading: any thread. Errors: as issue().
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace rgpu::backend {

// Boxed kernels for the Autograd key (tracks gradients where wanted) and for the device's own key.
void graph_call_autograd(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void graph_call_plain(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace rgpu::backend
