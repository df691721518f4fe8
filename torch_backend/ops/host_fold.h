// HostFold: calls on small integers whose values the client knows (device/host_values.h) are
// repeated on the host, beside their record, so that the results are known as well: mask building,
// `(ids == pad).any()`, `mask.all()` of what the program itself uploaded then wait for nothing.
// Only what is exact and equal on every device is repeated (OpInfo::fold).
//
// Threading: under the IssueLock, so that values change in the order of the records.
// Cost:      nothing for calls that touch no known storage; else one CPU kernel over at most
//            HostValues::kStorageSizeBytesMax bytes.
// Errors:    none: a call that fails here is one whose result is not known.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_backend/device/host_values.h"
#include "torch_backend/ops/call_key.h"
#include "torch_backend/ops/op_info.h"
#include "torch_backend/ops/op_memory.h"

namespace rgpu::backend {

// The tensor on the CPU, over the known bytes, to be read only; undefined when they are not known.
[[nodiscard]] at::Tensor host_view(const at::Tensor& tensor);
// Whether the tensor's elements are all of its storage's bytes.
[[nodiscard]] bool fills_storage(const at::Tensor& tensor);
// A storage of at most so many bytes is downloaded as a whole when an element of it is read.
inline constexpr size_t kReadAheadBytesMax = 4096;
// Whether HostValues can know the tensor's storage, read as the tensor does.
[[nodiscard]] bool is_knowable(const at::Tensor& tensor);
// A CPU storage for HostValues::put().
[[nodiscard]] c10::Storage host_storage(size_t size_bytes);

// What is to be noted about a call's one new tensor.
struct Folded {
  c10::Storage known;           // Its bytes, or null.
  HostValues::Origins origins;  // Of a single number that is not known.
  void note(const at::Tensor& result) &&;
};

// After the record of a call was appended that has knowable arguments, and before its arguments on
// the stack are replaced: repeats it or forgets what it wrote.
[[nodiscard]] Folded fold_on_host(const OpInfo& op, const OpEntry& entry,
                                  const torch::jit::Stack& stack);
// For calls that are not repeated and write: what is known of any of their tensors is forgotten.
void forget_known(const CallKey& key);

}  // namespace rgpu::backend
