// Streams and events: what CUDA's handles name, and their numbers on the wire.
//
// Each device has limits::kStreamsPerDeviceMax rings. 0 is the legacy default stream; a created
// stream gets one of the others, shared when there are more streams than rings (they are then in
// order with each other as well, which no correct program can tell but by time).
//
// Threading: any thread; a stream's or event's own state is guarded by its mutex.
// Lifetime:  handles as HandleTable says. A destroyed stream's work goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/handle_table.h"

namespace rgpu::cuda {

struct Context;
class CallbackQueue;

struct Stream {
  Context* context = nullptr;
  Device* device = nullptr;
  uint32_t number = 0;  // On the wire.
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  std::mutex mutex;              // Guards what follows.
  uint64_t marker_request = 0;   // A kSyncStream whose answer a query looks for; 0: none.
  uint64_t marker_position = 0;  // Its place in the ring.
  std::shared_ptr<CallbackQueue> callbacks;
  int sync_policy = CU_SYNC_POLICY_AUTO;
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  uint64_t number = 0;       // On the wire.
  std::mutex mutex;          // Guards what follows.
  Device* device = nullptr;  // It was recorded on last; nullptr: never.
  uint32_t stream = 0;       // The wire's number of that stream,
  uint64_t position = 0;     // and the recording's place in its ring.
  uint64_t request = 0;      // Of the last recording, asked and not answered; 0: none.
  bool reached = false;      // It was answered:
  CUresult code = CUDA_SUCCESS;
  int64_t time_ns = 0;
};

[[nodiscard]] HandleTable<Stream>& streams();
[[nodiscard]] HandleTable<Event>& events();

// What a handle means for the calling thread, whose context is current. CUDA_ERROR_INVALID_HANDLE.
// 0 is the legacy default stream here; `_ptsz` functions have replaced it before.
[[nodiscard]] CUresult find_stream(CUstream handle, Stream*& stream) noexcept;
[[nodiscard]] CUresult create_stream(Context& context, unsigned flags, int priority,
                                     Stream*& stream);
[[nodiscard]] CUresult destroy_stream(Stream& stream);
// Waits until all that was issued to it is done and its deliveries are in place.
[[nodiscard]] CUresult synchronize(Stream& stream);
// CUDA_ERROR_NOT_READY or what synchronize() would have; waits for nothing.
[[nodiscard]] CUresult query(Stream& stream);
[[nodiscard]] CUresult synchronize_device(Device& device);
// Whether a ring's work is known to be done up to a place in it.
[[nodiscard]] bool is_done(uint32_t stream, uint64_t position) noexcept;

[[nodiscard]] CUresult record_event(Event& event, Stream& stream);
[[nodiscard]] CUresult wait_event(Stream& stream, Event& event);
[[nodiscard]] CUresult synchronize(Event& event);
[[nodiscard]] CUresult query(Event& event);
// CUDA_ERROR_NOT_READY, CUDA_ERROR_INVALID_HANDLE when one was never recorded.
[[nodiscard]] CUresult elapsed(Event& start, Event& end, float& milliseconds);
[[nodiscard]] CUresult destroy_event(Event& event);

// Whether a host function has been queued on some stream and has not returned.
[[nodiscard]] bool host_functions_pending() noexcept;
// How often a thread of ours, not the program's, waited for an answer.
[[nodiscard]] uint64_t background_waits() noexcept;
// Runs `function` when the stream gets there; the stream goes on when it has returned.
[[nodiscard]] CUresult launch_host_function(Stream& stream, void (*function)(void*), void* data);

}  // namespace rgpu::cuda
