#include "torch_backend/device/event.h"

#include <span>
#include <utility>

#include "torch_backend/device/client.h"
#include "torch_backend/device/downloads.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
Event::~Event() {
  drop_request_locked();
  if (mark_.handle != 0) Client::get().release(mark_.generation, mark_.handle);
}

void Event::drop_request_locked() noexcept {
  Client& client = Client::get();
  if (request_ != 0 && client.generation() == mark_.generation) {
    client.session().disown_request(request_);
  }
  request_ = 0;
}

bool Event::lost_locked() const {
  return mark_.version == 0 || mark_.generation != Client::get().generation();
}

void Event::record(uint32_t stream) {
  Client& client = Client::get();
  Session& session = client.session();
  wire::Handle handle = 0;
  uint64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    drop_request_locked();
    if (lost_locked()) mark_.handle = session.new_handles(1);
    mark_ = {mark_.handle, client.generation(), stream, mark_.version + 1, 0};
    time_ns_.reset();
    handle = mark_.handle;
    version = mark_.version;
  }
  client.append(wire::Command::kRecordEvent, stream, {&handle, 1}, {});
  const std::lock_guard lock(mutex_);
  if (mark_.version != version) return;      // Recorded anew meanwhile, maybe on another stream.
  mark_.records = session.appended(stream);  // Or a little more, if other threads use the stream.
}

void Event::block(uint32_t stream) {
  wire::Handle handle = 0;
  {
    const std::lock_guard lock(mutex_);
    if (lost_locked() || mark_.stream == stream) return;
    handle = mark_.handle;
  }
  Client::get().append(wire::Command::kWaitEvent, stream, {&handle, 1}, {});
}

bool Event::poll_locked() {
  if (time_ns_ || lost_locked()) return true;
  if (request_ == 0) return false;
  std::optional<Result<wire::Reply>> reply = Client::get().session().poll(request_);
  if (!reply) return false;
  request_ = 0;
  if (!*reply) raise_if_error(reply->error());
  time_ns_ = integer_of(**reply);
  return true;
}

void Event::ask() {
  Client& client = Client::get();
  uint64_t request = 0;
  Mark mark;
  {
    const std::lock_guard lock(mutex_);
    if (time_ns_ || lost_locked() || request_ != 0) return;
    const Result<uint64_t> opened = client.session().new_request();
    // Too many questions at once: this one is asked another time.
    if (!opened && opened.error().code() == Code::kExhausted) return;
    if (!opened) raise_if_error(opened.error());
    request = request_ = *opened;
    mark = mark_;
  }
  client.ask(wire::Command::kQueryEvent, mark.stream, {&mark.handle, 1}, request);
}

bool Event::reached_locked() const {
  return mark_.records != 0 && is_done(mark_.stream, mark_.records);
}

bool Event::query() {
  {
    const std::lock_guard lock(mutex_);
    if (reached_locked()) return true;
  }
  ask();
  const std::lock_guard lock(mutex_);
  return poll_locked();
}

void Event::synchronize() {
  bool reached = false;
  {
    const std::lock_guard lock(mutex_);
    reached = reached_locked();
  }
  if (!reached) (void)time_ns();
  Downloads::get().collect();
}

int64_t Event::time_ns() {
  for (;;) {
    ask();
    uint64_t request = 0;
    uint64_t version = 0;
    {
      const std::lock_guard lock(mutex_);
      if (time_ns_ || lost_locked()) return time_ns_.value_or(0);
      request = std::exchange(request_, 0);
      version = mark_.version;
    }
    if (request == 0) {  // All requests are pending, or another thread waits for this one.
      synchronize_devices();
      continue;
    }
    const int64_t time = integer_of(Client::get().wait(request));
    const std::lock_guard lock(mutex_);
    if (mark_.version == version) time_ns_ = time;
    return time;
  }
}

int64_t Event::ns_since(Event& start) {
  start.ask();
  const int64_t end_ns = time_ns();
  {
    const std::lock_guard lock(start.mutex_);
    (void)start.poll_locked();  // Its answer came before this one's, mostly.
  }
  return end_ns - start.time_ns();
}

}  // namespace rgpu::backend
