// Host order: what a program takes for done when a copy that blocks has returned.
//
// A copy to the device that blocks is deferred here like any other, so streams that do not wait for
// the one that it went to (non-blocking ones, those of other devices) would not see its bytes. Such
// a stream is made to follow it, by an event, when it is next given work.
//
// Threading: any thread. Cost: one comparison for work after which nothing blocking was deferred.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/streams.h"
#include "wire/limits.h"

namespace rgpu::cuda {

namespace detail {
extern std::atomic<uint64_t> blocking_copies;  // Deferred so far.
// By ring: how many of them its next work follows in any case.
extern std::array<std::atomic<uint64_t>, limits::kStreamsMax> followed;
[[nodiscard]] CUresult follow_all(Client& client, const Stream& stream);
}  // namespace detail

// A blocking copy to the device was appended to the stream.
[[nodiscard]] CUresult note_blocking_copy(Client& client, const Stream& stream);
// The first non-blocking stream is about to be made.
[[nodiscard]] CUresult begin_host_order(Client& client);

// Before work is appended to the stream.
[[nodiscard]] inline CUresult follow_blocking_copies(Client& client, const Stream& stream) {
  const uint64_t seen = detail::followed[stream.number].load(std::memory_order_relaxed);
  if (seen == detail::blocking_copies.load(std::memory_order_acquire)) [[likely]] {
    return CUDA_SUCCESS;
  }
  return detail::follow_all(client, stream);
}

}  // namespace rgpu::cuda
