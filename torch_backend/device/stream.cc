#include "torch_backend/device/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "torch_backend/device/client.h"

namespace rgpu::backend {
namespace {

// What is known of one stream. Counts are of its records; a mutex is never held while anything
// waits.
struct Known {
  void of_session(uint32_t session_generation) {
    if (generation == session_generation) return;
    generation = session_generation;
    request = asked_at = done = 0;
  }

  std::mutex mutex;
  uint32_t generation = 0;
  uint64_t request = 0;   // query_stream()'s question under way; 0: none.
  uint64_t asked_at = 0;  // What its answer covers; 0: nobody knows.
  uint64_t done = 0;
};

using KnownStreams = std::array<Known, kPoolSize + 1>;

Known& known_stream(uint32_t stream) {
  // By device, made when the first of its streams is asked for, and leaked: used until the end.
  static std::array<std::atomic<KnownStreams*>, limits::kDevicesMax> devices{};
  std::atomic<KnownStreams*>& device = devices[wire::device_of_stream(stream)];
  KnownStreams* streams = device.load(std::memory_order_acquire);
  if (streams == nullptr) {
    auto made = std::make_unique<KnownStreams>();
    if (device.compare_exchange_strong(streams, made.get())) streams = made.release();
  }
  return (*streams)[wire::index_of_stream(stream)];
}

void note_done(uint32_t stream, uint32_t generation, uint64_t records) {
  Known& known = known_stream(stream);
  const std::lock_guard lock(known.mutex);
  known.of_session(generation);
  known.done = std::max(known.done, records);
}

// The records that a question asked after `appended` of them covers, itself included. Had another
// thread appended meanwhile, what it appended may stand before or after the question.
uint64_t with_question(const Session& session, uint32_t stream, uint64_t appended) {
  return session.appended(stream) == appended + 1 ? appended + 1 : appended;
}

}  // namespace

uint32_t stream_number(const c10::Stream& stream) {
  const c10::StreamId id = stream.id();
  TORCH_CHECK_VALUE(id >= 0 && id <= kPoolSize && stream.device_index() >= 0, "rgpu has no stream ",
                    id, ": use torch.Stream(device=\"rgpu\") to get one");
  return wire::stream_of(static_cast<uint32_t>(stream.device_index()), static_cast<uint32_t>(id));
}

constinit thread_local std::array<uint8_t, limits::kDevicesMax> current_stream_ids{};

void set_current_stream(const c10::Stream& stream) {
  const uint32_t number = stream_number(stream);
  current_stream_ids[wire::device_of_stream(number)] =
      static_cast<uint8_t>(wire::index_of_stream(number));
}

c10::StreamId new_stream(c10::DeviceIndex device) noexcept {
  static std::array<std::atomic<uint32_t>, limits::kDevicesMax> next{};
  const auto index = static_cast<uint8_t>(device);
  return 1 + next[index].fetch_add(1, std::memory_order_relaxed) % kPoolSize;
}

bool query_stream(uint32_t stream) {
  Client& client = Client::get();
  if (!client.connected()) return true;
  Session& session = client.session();
  Known& known = known_stream(stream);
  uint64_t appended = 0;
  uint64_t request = 0;
  {
    const std::lock_guard lock(known.mutex);
    known.of_session(client.generation());
    if (known.request != 0) {
      const std::optional<Result<wire::Reply>> reply = session.poll(known.request);
      if (!reply) return false;
      known.request = 0;
      known.done = std::max(known.done, known.asked_at);
      raise_if_failed(*reply);
    }
    appended = session.appended(stream);
    if (known.done == appended) return true;
    const Result<uint64_t> opened = session.new_request();
    // Too many questions at once: this one is asked another time.
    if (!opened && opened.error().code() == Code::kExhausted) return false;
    if (!opened) raise_if_error(opened.error());
    request = known.request = *opened;
    known.asked_at = 0;
  }
  client.ask(wire::Command::kSyncStream, stream, {}, request);
  const std::lock_guard lock(known.mutex);
  if (known.request == request) known.asked_at = with_question(session, stream, appended);
  return false;
}

void synchronize_stream(uint32_t stream) {
  Client& client = Client::get();
  if (!client.connected()) return;
  const uint32_t generation = client.generation();
  const uint64_t appended = client.session().appended(stream);
  client.synchronize_stream(stream);
  note_done(stream, generation, with_question(client.session(), stream, appended));
}

void synchronize_devices() {
  Client& client = Client::get();
  if (!client.connected()) return;
  const uint32_t generation = client.generation();
  // Of the streams in use, and of 0, to which the question itself goes.
  std::vector<std::pair<uint32_t, uint64_t>> appended;
  for (uint32_t device = 0; device < client.known_device_count(); ++device) {
    for (uint32_t i = 0; i <= kPoolSize; ++i) {
      const uint32_t stream = wire::stream_of(device, i);
      const uint64_t records = client.session().appended(stream);
      if (records != 0 || stream == 0) appended.emplace_back(stream, records);
    }
  }
  client.synchronize();
  for (const auto& [stream, records] : appended) {
    note_done(stream, generation,
              stream == 0 ? with_question(client.session(), stream, records) : records);
  }
}

bool is_done(uint32_t stream, uint64_t records) {
  Known& known = known_stream(stream);
  const std::lock_guard lock(known.mutex);
  known.of_session(Client::get().generation());
  return known.done >= records;
}

}  // namespace rgpu::backend
