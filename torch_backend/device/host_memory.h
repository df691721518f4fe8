// HostMemory: CPU memory for tensors on their way to and from the device. Large blocks are kept
// when they are freed (runtime/block_cache.h), since the faults of fresh memory cost as much as a
// fast line.
//
// Pinned means here: memory that an upload may refer to and a download may fill while the program
// goes on. Nothing is locked in physical memory.
//
// Threading: any thread.
// Errors:    throws as PyTorch's own allocator does.
#pragma once

#include <c10/core/Allocator.h>

namespace rgpu::backend {

// For ordinary tensors.
[[nodiscard]] c10::Allocator* host_allocator();
// For Tensor.pin_memory().
[[nodiscard]] c10::Allocator* pinned_allocator();
// Whether the address lies in memory of the pinned allocator.
[[nodiscard]] bool is_pinned(const void* address);

}  // namespace rgpu::backend
