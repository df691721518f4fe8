#include "cuda_shim/client/host_order.h"

#include <map>
#include <mutex>

#include "cuda_shim/client/errors.h"
#include "wire/stream.h"

namespace rgpu::cuda {
namespace detail {

std::atomic<uint64_t> blocking_copies{0};
std::array<std::atomic<uint64_t>, limits::kStreamsMax> followed{};

}  // namespace detail

namespace {

using wire::Command;

struct Last {
  uint64_t position = 0;  // Of the last blocking copy in a ring.
  uint64_t event = 0;     // Recorded behind it; 0: it was not.
  bool non_blocking = false;
};

std::mutex order_mutex;          // Guards what follows.
std::map<uint32_t, Last> lasts;  // By ring.
bool is_on = false;              // There are streams that wait for no other.

bool is_non_blocking(const Stream& stream) { return (stream.flags & CU_STREAM_NON_BLOCKING) != 0; }

// Whether the server has the two in order anyway: one is the legacy default stream of a device, and
// the other a stream of the same device that waits for it.
bool is_ordered(uint32_t ring, const Last& last, const Stream& stream) {
  const uint32_t legacy = wire::stream_of(stream.device->number, 0);
  return (ring == legacy && !is_non_blocking(stream)) ||
         (stream.number == legacy && !last.non_blocking &&
          wire::device_of_stream(ring) == stream.device->number);
}

// order_mutex is held.
CUresult record(Client& client, uint32_t ring, Last& last) {
  if (last.event == 0) last.event = client.new_number();
  RGPU_TRY(client.append(ring, Command::kRecordEvent, last.event));
  last.position = client.session().appended(ring);
  detail::blocking_copies.fetch_add(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult note_blocking_copy(Client& client, const Stream& stream) {
  const std::lock_guard lock(order_mutex);
  Last& last = lasts[stream.number];
  last.non_blocking = is_non_blocking(stream);
  if (is_on || client.devices().size() > 1) return record(client, stream.number, last);
  last.position = client.session().appended(stream.number);
  return CUDA_SUCCESS;
}

CUresult begin_host_order(Client& client) {
  const std::lock_guard lock(order_mutex);
  if (is_on) return CUDA_SUCCESS;
  is_on = true;
  for (auto& [ring, last] : lasts) {
    if (last.event == 0 && !is_done(ring, last.position)) RGPU_TRY(record(client, ring, last));
  }
  return CUDA_SUCCESS;
}

CUresult detail::follow_all(Client& client, const Stream& stream) {
  const std::lock_guard lock(order_mutex);
  const uint64_t count = blocking_copies.load(std::memory_order_relaxed);
  for (const auto& [ring, last] : lasts) {
    if (last.event == 0 || ring == stream.number || is_done(ring, last.position) ||
        is_ordered(ring, last, stream)) {
      continue;
    }
    RGPU_TRY(client.append(stream.number, Command::kWaitEvent, last.event));
  }
  followed[stream.number].store(count, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
