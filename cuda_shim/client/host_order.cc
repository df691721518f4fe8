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
  bool non_blocking = false;
};

std::mutex order_mutex;          // Guards what follows.
std::map<uint32_t, Last> lasts;  // By ring.

bool is_non_blocking(const Stream& stream) { return (stream.flags & CU_STREAM_NON_BLOCKING) != 0; }

// Whether the server has the two in order anyway: one is the legacy default stream of a device, and
// the other a stream of the same device that waits for it.
bool is_ordered(uint32_t ring, const Last& last, const Stream& stream) {
  const uint32_t legacy = wire::stream_of(stream.device->number, 0);
  return (ring == legacy && !is_non_blocking(stream)) ||
         (stream.number == legacy && !last.non_blocking &&
          wire::device_of_stream(ring) == stream.device->number);
}

}  // namespace

void note_blocking_copy(Client& client, const Stream& stream) {
  const std::lock_guard lock(order_mutex);
  lasts[stream.number] = {client.session().appended(stream.number), is_non_blocking(stream)};
  detail::blocking_copies.fetch_add(1, std::memory_order_release);
}

CUresult detail::follow_all(Client& client, const Stream& stream) {
  const std::lock_guard lock(order_mutex);
  const uint64_t count = blocking_copies.load(std::memory_order_relaxed);
  for (auto at = lasts.begin(); at != lasts.end();) {
    const auto& [ring, last] = *at;
    if (is_done(ring, last.position)) {
      at = lasts.erase(at);
      continue;
    }
    if (ring != stream.number && !is_ordered(ring, last, stream)) {
      const uint64_t event = client.new_number();
      RGPU_TRY(client.append(ring, Command::kRecordEvent, event));
      RGPU_TRY(client.append(stream.number, Command::kWaitEvent, event));
      client.session().free(event);
    }
    ++at;
  }
  followed[stream.number].store(count, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
