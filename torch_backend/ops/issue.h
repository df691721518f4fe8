// Issue: the one way of every op from PyTorch's dispatcher into the record ring.
//
// Threading: any thread; one uncontended lock around look-up and append.
// Cost:      about 1 µs when the call is remembered; a distinct call's first time runs PyTorch's
//            Meta kernel (up to 1 ms) and sends its template.
// Errors:    wrong shapes, dtypes and devices at the call; a remote failure at the next wait that
//            depends on it.
#pragma once

#include <ATen/core/op_registration/adaption.h>
#include <ATen/core/stack.h>

#include <atomic>

#include "torch_backend/ops/call_key.h"
#include "torch_backend/ops/op_info.h"
#include "torch_backend/ops/op_memory.h"

namespace rgpu::backend {

// Replaces the call's arguments on the stack by its results.
void issue(const OpInfo& op, torch::jit::Stack* stack);

// By name; looks the op up once and keeps it. For kernels that issue a known op.
[[nodiscard]] const OpInfo& op_info(const char* name, const char* overload);
[[nodiscard]] const OpInfo& op_info(const c10::OperatorHandle& op);

// A kernel for one op: what is registered for each.
class IssueKernel final : public c10::OperatorKernel {
 public:
  explicit IssueKernel(const c10::OperatorHandle& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack);

 private:
  c10::OperatorHandle op_;
  std::atomic<const OpInfo*> info_{nullptr};
};

// The fallback: PyTorch's ops that were registered later, and those of other libraries.
void issue_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The record of an entry with the current key's handles; returns the first new handle. For kernels
// that bring an entry of their own.
struct Issued {
  wire::Handle first_new_handle = 0;
  uint32_t generation = 0;
  c10::DeviceIndex device = 0;
  uint64_t request = 0;  // When the entry replies.
};
// The caller holds an IssueLock.
[[nodiscard]] Issued append_call(OpEntry& entry, CallKey& key);
// Inserts what was learnt about `key`; forgets everything first when the memory is full. Under the
// same mutex.
OpEntry* remember(std::unique_ptr<OpEntry> entry, const CallKey& key);

// A result as planned, over a new storage under `handle`.
[[nodiscard]] at::Tensor make_tensor(const TensorPlan& plan, wire::Handle handle,
                                     const Issued& issued);

// The key of the calling thread.
[[nodiscard]] CallKey& thread_key();
[[nodiscard]] OpMemory& op_memory();
// The bits of thread state that shape results: the default dtype and the current device.
[[nodiscard]] uint64_t context_bits();

}  // namespace rgpu::backend
