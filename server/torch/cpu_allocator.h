// CpuAllocator: PyTorch's allocator for CPU memory in this worker. Large blocks (payloads on their
// way in, the results of large ops) are kept when they are freed, for the next of their size.
//
// Threading: any thread.
// Lifetime:  the process's. A worker is one session's, so no block passes to another client.
// Errors:    throws as PyTorch's own does when there is no memory, after letting go of what is
// kept.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace rgpu::server {

[[nodiscard]] c10::Allocator* cpu_allocator();
// From now on PyTorch's CPU tensors are allocated by it too.
void use_cpu_allocator();
[[nodiscard]] size_t kept_cpu_size_bytes();
void empty_cpu_cache();

}  // namespace rgpu::server
