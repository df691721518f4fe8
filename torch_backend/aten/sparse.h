// Sparse layouts of device rgpu: COO, CSR, CSC, BSR, BSC.
//
// A sparse tensor is PyTorch's own object over dense components of the device, so three things can
// become of an op that PyTorch has for sparse tensors of the CPU:
// - what only moves metadata or computes on components runs here: PyTorch's own kernel, whose ops
// on
//   the components become records. No wait, as far as PyTorch itself needs no values;
// - the rest goes over whole (ops/sparse_call.h);
// - composites stay composites, as on the CPU.
#pragma once

namespace rgpu::backend {

// Once, when the extension loads.
void register_sparse_kernels();

}  // namespace rgpu::backend
