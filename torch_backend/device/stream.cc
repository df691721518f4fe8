#include "torch_backend/device/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

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

KnownStreams& known_streams() {
  static auto* streams = new KnownStreams();  // Leaked: used until the end.
  return *streams;
}

void note_done(uint32_t stream, uint32_t generation, uint64_t records) {
  Known& known = known_streams()[stream];
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

uint32_t stream_number(c10::StreamId id) {
  TORCH_CHECK_VALUE(id >= 0 && id <= kPoolSize, "rgpu has no stream ", id,
                    ": use torch.Stream(device=\"rgpu\") to get one");
  return static_cast<uint32_t>(id);
}

constinit thread_local uint32_t current_stream_number = 0;

void set_current_stream(c10::StreamId id) { current_stream_number = stream_number(id); }

c10::StreamId new_stream() noexcept {
  static std::atomic<uint32_t> next{0};
  return 1 + next.fetch_add(1, std::memory_order_relaxed) % kPoolSize;
}

bool query_stream(uint32_t stream) {
  Client& client = Client::get();
  if (!client.connected()) return true;
  Session& session = client.session();
  Known& known = known_streams()[stream];
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

void synchronize_device() {
  Client& client = Client::get();
  if (!client.connected()) return;
  const uint32_t generation = client.generation();
  std::array<uint64_t, kPoolSize + 1> appended{};
  for (uint32_t i = 0; i < appended.size(); ++i) appended[i] = client.session().appended(i);
  client.synchronize();
  appended[0] = with_question(client.session(), 0, appended[0]);  // kSync goes there.
  for (uint32_t i = 0; i < appended.size(); ++i) {
    if (appended[i] != 0) note_done(i, generation, appended[i]);
  }
}

bool is_done(uint32_t stream, uint64_t records) {
  Known& known = known_streams()[stream];
  const std::lock_guard lock(known.mutex);
  known.of_session(Client::get().generation());
  return known.done >= records;
}

}  // namespace rgpu::backend
