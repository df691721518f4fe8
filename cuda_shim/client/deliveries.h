// Deliveries: copies from device memory to pinned memory that nobody waited for.
//
// Their replies come before that of whatever synchronizes with them, so they are in place by then;
// what is left is to take them off the list.
//
// Threading: any thread.
#pragma once

#include <cstdint>

#include "cuda_shim/client/client.h"

namespace rgpu::cuda {

// `request` is open; its reply's payload goes to `target`. Waits for the oldest when there are very
// many.
[[nodiscard]] CUresult add_delivery(Client& client, uint64_t request, const void* target,
                                    uint64_t size_bytes);
// Takes those off the list that have arrived. Returns the first failure among them.
CUresult settle_deliveries(Client& client);
// Waits for those that write to these bytes.
[[nodiscard]] CUresult await_deliveries(Client& client, const void* bytes, uint64_t size_bytes);
[[nodiscard]] bool deliveries_pending() noexcept;

}  // namespace rgpu::cuda
