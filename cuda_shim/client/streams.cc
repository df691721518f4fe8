#include "cuda_shim/client/streams.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/deliveries.h"
#include "cuda_shim/client/host_order.h"
#include "cuda_shim/client/memory_pool.h"
#include "wire/limits.h"
#include "wire/stream.h"

namespace rgpu::cuda {
namespace {

using wire::Command;

constexpr size_t kStreamsMax = size_t{1} << 16;
constexpr size_t kEventsMax = size_t{1} << 20;
constexpr uint32_t kRings = limits::kStreamsPerDeviceMax;

// Of every ring: how far a synchronization has reached.
std::array<std::atomic<uint64_t>, limits::kStreamsMax> synced;
// Of every ring: how many streams use it.
std::array<std::atomic<uint32_t>, limits::kStreamsMax> shared;
// Of every ring: whether a stream ever used it that does not wait for the legacy default stream.
std::array<std::atomic<bool>, limits::kStreamsMax> non_blocking;
std::atomic<uint64_t> stream_ids{2};

// Of a ring: records at its end that are no work: the work before ends at `from`.
struct Idle {
  uint64_t from = 0;
  uint64_t to = 0;
};
std::mutex idle_mutex;
std::array<Idle, limits::kStreamsMax> idle;  // Guarded by idle_mutex.

void raise(std::atomic<uint64_t>& value, uint64_t to) noexcept {
  uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < to && !value.compare_exchange_weak(seen, to)) {
  }
}

bool nothing_left(Client& client, uint32_t number) {
  const std::lock_guard lock(idle_mutex);
  const uint64_t appended = client.session().appended(number);
  const Idle& end = idle[number];
  return synced[number] >= appended || (end.to == appended && synced[number] >= end.from);
}

CUresult first_of(CUresult a, CUresult b) { return a != CUDA_SUCCESS ? a : b; }

// The ring that the fewest streams use.
uint32_t take_ring(uint32_t device) {
  uint32_t best = wire::stream_of(device, 1);
  for (uint32_t i = 1; i < kRings; ++i) {
    const uint32_t number = wire::stream_of(device, i);
    if (shared[number] == 0) {
      best = number;
      break;
    }
    if (shared[number] < shared[best]) best = number;
  }
  ++shared[best];
  return best;
}

// What a synchronization brings with it: deliveries are in place, pools give memory back.
CUresult settle(Client& client) {
  const CUresult code = settle_deliveries(client);
  trim_pools(client);
  return code;
}

CUresult connected(Client*& client) {
  client = connected_client();
  return client == nullptr ? CUDA_ERROR_NOT_INITIALIZED : client->sticky();
}

void end_marker(Client& client, Stream& stream) {
  if (stream.marker_request != 0) {
    client.session().disown_request(std::exchange(stream.marker_request, 0));
  }
}

// The event's mutex is held. True: its last recording is known to be reached, or to have failed.
bool is_answered(Client& client, Event& event) {
  if (event.reached) return true;
  if (event.request == 0) return false;
  std::vector<int64_t> results;
  if (!client.poll(event.request, event.code, &results)) return false;
  event.request = 0;
  event.reached = true;
  if (!results.empty()) event.time_ns = results[0];
  raise(synced[event.stream], event.position);
  return true;
}

CUresult ask_event(Client& client, Event& event) {
  if (event.reached || event.request != 0) return CUDA_SUCCESS;
  const CUresult code =
      client.request(event.stream, Command::kQueryEvent, event.number, event.request);
  // The question is no work: where nothing was issued between, the ring is done with both.
  if (client.session().appended(event.stream) == event.position + 1) ++event.position;
  return code;
}

}  // namespace

HandleTable<Stream>& streams() {
  static auto* const table = new HandleTable<Stream>(kStreamsMax);
  return *table;
}

HandleTable<Event>& events() {
  static auto* const table = new HandleTable<Event>(kEventsMax);
  return *table;
}

// ---- Streams ------------------------------------------------------------------------------------

CUresult find_stream(CUstream handle, Stream*& stream) noexcept {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    Context* const context = current();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    stream = &context->legacy;
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    Context* const context = current();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return per_thread_stream(*context, stream);
  }
  stream = streams().find(handle);
  return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult create_stream(Context& context, unsigned flags, int priority, Stream*& stream) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  if ((flags & CU_STREAM_NON_BLOCKING) != 0) {
    if (const CUresult code = begin_host_order(*client); code != CUDA_SUCCESS) return code;
  }
  stream = streams().create();
  if (stream == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  stream->context = &context;
  stream->device = context.device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = stream_ids.fetch_add(1);
  stream->number = take_ring(context.device->number);
  if ((flags & CU_STREAM_NON_BLOCKING) != 0) non_blocking[stream->number] = true;
  const wire::cuda::CreateStream create{
      (flags & CU_STREAM_NON_BLOCKING) != 0 ? wire::cuda::CreateStream::kNonBlocking : 0, priority};
  const uint64_t before = client->session().appended(stream->number);
  CUresult code = client->append(stream->number, Call::kCreateStream, create);
  // That is no work for a query to find.
  if (synced[stream->number] >= before) raise(synced[stream->number], before + 1);
  if (const uint64_t awaited = context.awaited_event; awaited != 0 && code == CUDA_SUCCESS) {
    code = client->append(stream->number, Command::kWaitEvent, awaited);
  }
  return code;
}

CUresult destroy_stream(Stream& stream) {
  Client* client = nullptr;
  const CUresult code = connected(client);
  if (client != nullptr) {
    const std::lock_guard lock(stream.mutex);
    end_marker(*client, stream);
  }
  const uint32_t number = stream.number;
  streams().destroy(&stream);
  if (--shared[number] != 0 || client == nullptr) return code;
  return first_of(code, client->append_bare(number, Call::kDestroyStream));
}

CUresult synchronize(Stream& stream) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  // The legacy default stream comes after all that wait for each other with it.
  const bool is_legacy = stream.number == wire::stream_of(stream.device->number, 0);
  std::array<uint64_t, kRings> positions{};
  for (uint32_t i = 0; i < (is_legacy ? kRings : 0); ++i) {
    const uint32_t number = wire::stream_of(stream.device->number, i);
    if (!non_blocking[number]) positions[i] = client->session().appended(number);
  }
  const uint64_t position = client->session().appended(stream.number);
  const CUresult code = client->ask(stream.number, Command::kSyncStream, 0);
  for (uint32_t i = 0; i < (is_legacy ? kRings : 0); ++i) {
    raise(synced[wire::stream_of(stream.device->number, i)], positions[i]);
  }
  raise(synced[stream.number], position + 1);
  return first_of(code, settle(*client));
}

CUresult query(Stream& stream) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(stream.mutex);
  auto code = CUDA_SUCCESS;
  if (stream.marker_request != 0) {
    if (!client->poll(stream.marker_request, code)) return CUDA_ERROR_NOT_READY;
    stream.marker_request = 0;
    raise(synced[stream.number], stream.marker_position);
  }
  if (code != CUDA_SUCCESS || nothing_left(*client, stream.number)) {
    return first_of(code, settle_deliveries(*client));
  }
  code = client->request(stream.number, Command::kSyncStream, 0, stream.marker_request);
  if (code != CUDA_SUCCESS) return code;
  stream.marker_position = client->session().appended(stream.number);
  client->session().flush();
  return CUDA_ERROR_NOT_READY;
}

CUresult synchronize_device(Device& device) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  std::array<uint64_t, kRings> positions;
  for (uint32_t i = 0; i < kRings; ++i) {
    positions[i] = client->session().appended(wire::stream_of(device.number, i));
  }
  const CUresult code = client->ask(wire::stream_of(device.number, 0), Command::kSync, 0);
  for (uint32_t i = 0; i < kRings; ++i) {
    raise(synced[wire::stream_of(device.number, i)], positions[i] + (i == 0 ? 1 : 0));
  }
  return first_of(code, settle(*client));
}

bool is_done(uint32_t stream, uint64_t position) noexcept { return synced[stream] >= position; }

// ---- Events -------------------------------------------------------------------------------------

CUresult record_event(Event& event, Stream& stream) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(event.mutex);
  if (event.request != 0) client->session().disown_request(std::exchange(event.request, 0));
  if (event.number == 0) event.number = client->new_number();
  event.device = stream.device;
  event.stream = stream.number;
  event.reached = false;
  event.code = CUDA_SUCCESS;
  const CUresult code = client->append(stream.number, Command::kRecordEvent, event.number);
  event.position = client->session().appended(stream.number);
  return code;
}

CUresult wait_event(Stream& stream, Event& event) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(event.mutex);
  if (event.device == nullptr || event.reached) return CUDA_SUCCESS;
  return client->append(stream.number, Command::kWaitEvent, event.number);
}

CUresult synchronize(Event& event) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  std::unique_lock lock(event.mutex);
  if (event.device == nullptr) return CUDA_SUCCESS;
  if (!is_answered(*client, event)) {
    if (const CUresult code = ask_event(*client, event); code != CUDA_SUCCESS) return code;
    const uint64_t request = std::exchange(event.request, 0);
    const uint64_t position = event.position;
    const uint32_t stream = event.stream;
    lock.unlock();
    std::vector<int64_t> results;
    const CUresult code = client->wait(request, &results);
    lock.lock();
    raise(synced[stream], position);
    if (event.position == position && event.stream == stream) {
      event.reached = true;
      event.code = code;
      if (!results.empty()) event.time_ns = results[0];
    }
    return first_of(code, settle(*client));
  }
  return first_of(event.code, settle(*client));
}

CUresult query(Event& event) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(event.mutex);
  if (event.device == nullptr) return CUDA_SUCCESS;
  if (is_answered(*client, event)) return first_of(event.code, settle_deliveries(*client));
  if (synced[event.stream] >= event.position) return settle_deliveries(*client);
  if (event.request != 0) return CUDA_ERROR_NOT_READY;
  if (const CUresult code = ask_event(*client, event); code != CUDA_SUCCESS) return code;
  client->session().flush();
  return CUDA_ERROR_NOT_READY;
}

CUresult elapsed(Event& start, Event& end, float& milliseconds) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  if (start.device == nullptr || end.device == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::array<Event*, 2> both{&start, &end};
  bool asked = false;
  for (Event* const event : both) {
    const std::lock_guard lock(event->mutex);
    if (is_answered(*client, *event)) continue;
    if (const CUresult code = ask_event(*client, *event); code != CUDA_SUCCESS) return code;
    asked = true;
  }
  if (asked) {
    // The answer to this comes from beside the streams: an event that was reached has answered
    // before.
    std::vector<int64_t> results;
    const CUresult code = client->ask(start.stream, Call::kMemoryInfo,
                                      wire::cuda::MemoryInfo{0, start.device->number, 0}, results);
    if (code != CUDA_SUCCESS) return code;
  }
  for (Event* const event : both) {
    const std::lock_guard lock(event->mutex);
    if (!is_answered(*client, *event)) return CUDA_ERROR_NOT_READY;
    if (event->code != CUDA_SUCCESS) return event->code;
  }
  milliseconds = static_cast<float>(static_cast<double>(end.time_ns - start.time_ns) * 1e-6);
  return CUDA_SUCCESS;
}

CUresult destroy_event(Event& event) {
  Client* client = nullptr;
  const CUresult code = connected(client);
  if (client != nullptr) {
    const std::lock_guard lock(event.mutex);
    if (event.request != 0) client->session().disown_request(event.request);
    if (event.number != 0) client->session().free(event.number);
  }
  events().destroy(&event);
  return code;
}

// ---- Host functions -----------------------------------------------------------------------------

namespace {
std::atomic<size_t> host_functions{0};
std::atomic<uint64_t> waits_of_callbacks{0};
}  // namespace

// Of one stream: runs its host functions in order, on a thread that ends when there are none.
class CallbackQueue : public std::enable_shared_from_this<CallbackQueue> {
 public:
  struct Entry {
    uint64_t request;
    uint64_t gate;
    uint32_t stream;
    void (*function)(void*);
    void* data;
  };
  void push(const Entry& entry) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(entry);
    if (std::exchange(running_, true)) return;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }

 private:
  void run() {
    for (;;) {
      Entry entry{};
      {
        const std::lock_guard lock(mutex_);
        if (entries_.empty()) {
          running_ = false;
          return;
        }
        entry = entries_.front();
        entries_.pop_front();
      }
      Client* const client = connected_client();
      waits_of_callbacks.fetch_add(1, std::memory_order_relaxed);
      const CUresult code =
          client == nullptr ? CUDA_ERROR_NOT_INITIALIZED : client->wait(entry.request);
      // As CUDA has it: not called when the context has failed.
      if (code == CUDA_SUCCESS) {
        (void)settle_deliveries(*client);
        entry.function(entry.data);
      }
      host_functions.fetch_sub(1, std::memory_order_release);
      if (client == nullptr) continue;
      open_gate(*client, entry);
      client->session().flush();
    }
  }

  static void open_gate(Client& client, const Entry& entry) {
    const std::lock_guard lock(idle_mutex);
    const uint64_t before = client.session().appended(entry.stream);
    (void)client.append(entry.stream, Call::kOpenGate, wire::cuda::OpenGate{entry.gate});
    // Where nothing came between, a query need not wait for this to be done.
    if (client.session().appended(entry.stream) != before + 1) return;
    Idle& end = idle[entry.stream];
    if (end.to != before) end.from = before;
    end.to = before + 1;
  }

  std::mutex mutex_;
  std::deque<Entry> entries_;
  bool running_ = false;
};

uint64_t background_waits() noexcept { return waits_of_callbacks.load(std::memory_order_relaxed); }

bool host_functions_pending() noexcept {
  return host_functions.load(std::memory_order_acquire) != 0;
}

CUresult launch_host_function(Stream& stream, void (*function)(void*), void* data) {
  Client* client = nullptr;
  if (const CUresult code = connected(client); code != CUDA_SUCCESS) return code;
  const std::lock_guard lock(stream.mutex);
  if (!stream.callbacks) stream.callbacks = std::make_shared<CallbackQueue>();
  wire::cuda::HostGate gate;
  gate.gate = client->new_number();
  if (const CUresult code = client->open_request(gate.request); code != CUDA_SUCCESS) return code;
  if (const CUresult code = client->append(stream.number, Call::kHostGate, gate);
      code != CUDA_SUCCESS) {
    client->abandon(gate.request);
    return code;
  }
  host_functions.fetch_add(1, std::memory_order_relaxed);
  stream.callbacks->push({gate.request, gate.gate, stream.number, function, data});
  client->session().flush();
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
