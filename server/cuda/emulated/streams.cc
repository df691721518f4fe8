#include "server/cuda/emulated/streams.h"

#include <algorithm>
#include <utility>

#include "server/crash_report.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {

Streams::~Streams() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_all();
  }
  room_.notify_all();
  for (const auto& [number, stream] : streams_) {
    if (stream->thread.joinable()) stream->thread.join();
  }
}

void Streams::wake_all() {
  for (const auto& [number, stream] : streams_) stream->changed.notify_one();
}

Streams::Stream& Streams::stream_of(uint32_t number) {
  std::unique_ptr<Stream>& stream = streams_[number];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->thread = std::thread([this, &queue = *stream] {
      crash_report::use_thread_stack();
      run(queue);
    });
  }
  return *stream;
}

void Streams::create(uint32_t number, bool non_blocking) {
  const std::lock_guard lock(mutex_);
  stream_of(number).non_blocking = non_blocking;
}

void Streams::destroy(uint32_t number) {
  const std::lock_guard lock(mutex_);
  stream_of(number).non_blocking = false;
}

bool Streams::is_done(const Mark& mark) const {
  const auto found = streams_.find(mark.stream);
  return found == streams_.end() || found->second->completed >= mark.sequence;
}

bool Streams::is_ready(const Piece& piece) const {
  return std::all_of(piece.after.begin(), piece.after.end(),
                     [this](const Mark& mark) { return is_done(mark); });
}

// The legacy default stream and the others that are not "non-blocking" wait for each other.
void Streams::add_legacy_order(uint32_t number, Piece& piece) {
  const uint32_t device = wire::device_of_stream(number);
  const uint32_t legacy = wire::stream_of(device, 0);
  if (number == legacy) {
    for (auto at = streams_.upper_bound(legacy);
         at != streams_.end() && wire::device_of_stream(at->first) == device; ++at) {
      const Stream& other = *at->second;
      if (!other.non_blocking && other.completed < other.submitted) {
        piece.after.push_back({at->first, other.submitted});
      }
    }
    return;
  }
  const auto found = streams_.find(legacy);
  if (found == streams_.end() || stream_of(number).non_blocking) return;
  const Stream& other = *found->second;
  if (other.completed < other.submitted) piece.after.push_back({legacy, other.submitted});
}

Streams::Mark Streams::submit_locked(uint32_t number, Piece piece,
                                     std::unique_lock<std::mutex>& lock) {
  Stream& stream = stream_of(number);
  const uint64_t size_bytes = piece.size_bytes;
  room_.wait(lock, [&] {
    const bool fits = queued_size_bytes_ == 0 || size_bytes == 0 ||
                      queued_size_bytes_ + size_bytes <= kQueuedSizeBytesMax;
    return closing_ || gates_closed_ != 0 || (fits && stream.queue.size() < kQueuedMax);
  });
  queued_size_bytes_ += size_bytes;
  piece.sequence = ++stream.submitted;
  const std::vector<Mark> next_after = std::exchange(stream.next_after, {});
  piece.after.insert(piece.after.end(), next_after.begin(), next_after.end());
  stream.queue.push_back(std::move(piece));
  stream.changed.notify_one();
  return {number, stream.submitted};
}

Streams::Mark Streams::submit(uint32_t number, Work work, uint64_t size_bytes) {
  std::unique_lock lock(mutex_);
  Piece piece{std::move(work), 0, {}, 0, size_bytes};
  add_legacy_order(number, piece);
  const auto fence = fences_.find(wire::device_of_stream(number));
  if (fence != fences_.end() && !is_done(fence->second)) piece.after.push_back(fence->second);
  return submit_locked(number, std::move(piece), lock);
}

void Streams::wait_for(uint32_t number, const Mark& mark) {
  const std::lock_guard lock(mutex_);
  if (!is_done(mark)) stream_of(number).next_after.push_back(mark);
}

void Streams::fence(uint32_t device, Work work) {
  std::unique_lock lock(mutex_);
  Piece piece{std::move(work), 0, {}, 0, 0};
  for (const auto& [number, stream] : streams_) {
    if (number < kFences && wire::device_of_stream(number) != device) continue;
    if (stream->completed < stream->submitted) piece.after.push_back({number, stream->submitted});
  }
  if (piece.after.empty()) {  // Nothing runs: at once, on this thread.
    lock.unlock();
    piece.work();
    return;
  }
  fences_[device] = submit_locked(kFences + device, std::move(piece), lock);
}

bool Streams::fenced(uint32_t device) {
  const std::lock_guard lock(mutex_);
  const auto fence = fences_.find(device);
  return fence != fences_.end() && !is_done(fence->second);
}

void Streams::after(const Mark& mark, Work work) {
  std::unique_lock lock(mutex_);
  if (is_done(mark)) {
    lock.unlock();
    work();
    return;
  }
  const uint32_t number = kWatchers + mark.stream;
  submit_locked(number, Piece{std::move(work), 0, {mark}, 0, 0}, lock);
  // Before what is to come after a later piece, though that was asked for first.
  std::deque<Piece>& queue = stream_of(number).queue;
  for (size_t i = queue.size() - 1; i != 0; --i) {
    const Mark& before = queue[i - 1].after.front();
    if (before.sequence <= mark.sequence || is_done(before)) break;
    std::swap(queue[i - 1], queue[i]);
    std::swap(queue[i - 1].sequence, queue[i].sequence);
  }
}

void Streams::after_all(Work work) {
  std::unique_lock lock(mutex_);
  Piece piece{std::move(work), 0, {}, 0, 0};
  for (const auto& [number, stream] : streams_) {
    if (stream->completed < stream->submitted) piece.after.push_back({number, stream->submitted});
  }
  submit_locked(kFences - 1, std::move(piece), lock);
}

void Streams::gate(uint32_t number, uint64_t gate, Work reached) {
  submit(number, std::move(reached));
  std::unique_lock lock(mutex_);
  ++gates_closed_;
  room_.notify_all();
  submit_locked(number, Piece{[] {}, 0, {}, gate, 0}, lock);
}

void Streams::open_gate(uint64_t gate) {
  const std::lock_guard lock(mutex_);
  if (gates_closed_ == 0) return;
  --gates_closed_;
  opened_.insert(gate);
  wake_all();
}

void Streams::run(Stream& stream) {
  std::unique_lock lock(mutex_);
  for (;;) {
    stream.changed.wait(lock, [&] {
      if (closing_) return true;
      if (stream.queue.empty()) return false;
      const Piece& next = stream.queue.front();
      return is_ready(next) && (next.gate == 0 || opened_.contains(next.gate));
    });
    if (closing_) return;
    Piece& piece = stream.queue.front();
    if (piece.gate != 0) opened_.erase(piece.gate);
    const Work work = std::move(piece.work);
    const uint64_t sequence = piece.sequence;
    lock.unlock();
    work();
    lock.lock();
    stream.completed = sequence;
    queued_size_bytes_ -= stream.queue.front().size_bytes;
    stream.queue.pop_front();
    room_.notify_all();
    wake_all();
  }
}

}  // namespace rgpu::server::cuda
