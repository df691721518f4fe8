// Memory: allocating on devices, host memory that is pinned, and moving bytes.
//
// Threading: any thread.
// Errors:    CUresult. What can be known here is returned at once; the rest comes with a later
// wait.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda_shim/client/context.h"

namespace rgpu::cuda {

// ---- Device memory
[[nodiscard]] CUresult allocate(const Calling& calling, size_t size_bytes, uint64_t& address);
// CUDA_ERROR_INVALID_VALUE when no allocation begins there. In order after all that was issued.
[[nodiscard]] CUresult free_device(Client& client, uint64_t address);
// Whether all of it lies in one allocation.
[[nodiscard]] bool is_allocated(const Client& client, uint64_t address, uint64_t size_bytes);

// ---- Host memory
struct HostBlock {
  void* address = nullptr;
  size_t size_bytes = 0;
  unsigned flags = 0;
  bool registered = false;  // The program's own.
  Context* context = nullptr;
};
[[nodiscard]] CUresult allocate_host(const Calling& calling, size_t size_bytes, unsigned flags,
                                     void*& address);
[[nodiscard]] CUresult free_host(void* address);
[[nodiscard]] CUresult register_host(const Calling& calling, void* address, size_t size_bytes,
                                     unsigned flags);
[[nodiscard]] CUresult unregister_host(void* address);
// The pinned block that holds the address.
[[nodiscard]] std::optional<HostBlock> find_host(const void* address);
[[nodiscard]] bool is_pinned(const void* address, size_t size_bytes);

// ---- Moving bytes
// One side of a copy: rows of a box. Pitches are of no meaning where there is one row or slice.
struct Side {
  bool on_device = false;
  uint64_t address = 0;  // Of the first byte, on either.
  uint64_t row_pitch_bytes = 0;
  uint64_t slice_pitch_bytes = 0;
  [[nodiscard]] std::byte* host() const { return reinterpret_cast<std::byte*>(address); }
};
// An address that the program gave without saying where it lies.
[[nodiscard]] Side side_of(const Client& client, uint64_t address);
// `blocking`: as the functions without Async have it. To pageable memory it blocks in any case.
[[nodiscard]] CUresult copy(Client& client, Stream& stream, const Side& target, const Side& source,
                            const wire::cuda::Extent& extent, bool blocking);
[[nodiscard]] CUresult set_memory(Client& client, Stream& stream, const Side& target,
                                  const wire::cuda::Extent& extent, uint32_t value,
                                  uint32_t value_size_bytes);

}  // namespace rgpu::cuda
