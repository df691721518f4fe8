// RealDriver: streams, the order between them, and what is called back or cleaned up later.

#include <algorithm>
#include <utility>

#include "server/cuda/real_driver.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {
namespace calls = wire::cuda;
}

// ---- Streams ------------------------------------------------------------------------------------

int RealDriver::make_stream(Stream& stream, unsigned flags, int priority) {
  use(*stream.device);
  const int code = driver_.create_stream(&stream.stream, flags, priority);
  if (code != kSuccess) stream.stream = nullptr;
  stream.flags = flags;
  stream.priority = priority;
  stream.fences_waited = 0;
  return code;
}

RealDriver::Stream* RealDriver::find_stream(uint32_t number, Outcome& failed) {
  Stream& stream = streams_[number];
  if (stream.device == nullptr) stream.device = devices_[wire::device_of_stream(number)].get();
  if (stream.stream == nullptr) {
    if (wire::index_of_stream(number) == 0) {
      stream.stream = cu_stream_legacy();
    } else if (const int code = make_stream(stream, 0, 0); code != kSuccess) {
      failed = note(*stream.device, code);
      return nullptr;
    }
  }
  use(*stream.device);
  return &stream;
}

RealDriver::Stream* RealDriver::stream_for_work(uint32_t number, Outcome& failed) {
  Stream* const stream = find_stream(number, failed);
  if (stream == nullptr) return nullptr;
  if (stream->fences_waited != fences_) {
    const int code = driver_.wait_event(stream->stream, last_fence_->event, 0);
    if (code != kSuccess) {
      failed = note(*stream->device, code);
      return nullptr;
    }
    stream->fences_waited = fences_;
  }
  if (!std::exchange(stream->is_dirty, true)) dirty_streams_.push_back(stream);
  return stream;
}

Outcome RealDriver::create_stream(uint32_t stream, const calls::CreateStream& options) {
  if (wire::index_of_stream(stream) == 0) {
    return {kInvalidHandle, "the legacy default stream is there from the beginning"};
  }
  return deferred_.submit([this, stream, options] { return do_create_stream(stream, options); });
}

Outcome RealDriver::do_create_stream(uint32_t number, const calls::CreateStream& options) {
  const bool is_free = (options.flags & calls::CreateStream::kNonBlocking) != 0;
  const unsigned flags = is_free ? kCuStreamNonBlocking : 0;
  Stream& stream = streams_[number];
  if (stream.device == nullptr) stream.device = devices_[wire::device_of_stream(number)].get();
  const CuStream before = stream.stream;
  if (before != nullptr && stream.flags == flags && stream.priority == options.priority) return {};
  // One more stream of the client's with this number: they are in order with each other.
  Mark last;
  if (before != nullptr) {
    use(*stream.device);
    retire_staging(stream);
    (void)join(stream);
    if (const int code = stream.device->marks->record(before, last); code != kSuccess) {
      return note(*stream.device, code);
    }
  }
  int code = make_stream(stream, flags, options.priority);
  if (code != kSuccess) {
    stream.stream = before;
    return note(*stream.device, code);
  }
  if (before != nullptr) {
    code = driver_.wait_event(stream.stream, last->event, 0);
    (void)driver_.destroy_stream(before);
  }
  return note(*stream.device, code);
}

void RealDriver::destroy_stream(uint32_t number) {
  (void)deferred_.submit([this, number]() -> Outcome {
    const auto found = streams_.find(number);
    if (found == streams_.end() || wire::index_of_stream(number) == 0) return {};
    Stream& stream = found->second;
    if (stream.stream == nullptr) return {};
    use(*stream.device);
    retire_staging(stream);
    (void)join(stream);
    use(*stream.device);
    (void)driver_.destroy_stream(std::exchange(stream.stream, nullptr));
    return {};
  });
}

// ---- Fences -------------------------------------------------------------------------------------

int RealDriver::join(Stream& stream) {
  if (!std::exchange(stream.is_dirty, false)) return kSuccess;
  std::erase(dirty_streams_, &stream);
  joined_since_fence_ = true;
  use(*stream.device);
  Mark mark;
  if (const int code = stream.device->marks->record(stream.stream, mark); code != kSuccess) {
    return code;
  }
  use(*fence_stream_.device);
  return driver_.wait_event(fence_stream_.stream, mark->event, 0);
}

int RealDriver::join_all() {
  int first = kSuccess;
  while (!dirty_streams_.empty()) {
    const int code = join(*dirty_streams_.back());
    if (first == kSuccess) first = code;
  }
  return first;
}

int RealDriver::fence(Mark& mark) {
  if (dirty_streams_.empty() && !joined_since_fence_ && last_fence_) {
    mark = last_fence_;
    return kSuccess;
  }
  // The stream that everything is on needs no waiting for itself.
  Stream* const only =
      !joined_since_fence_ && dirty_streams_.size() == 1 ? dirty_streams_.front() : nullptr;
  if (const int code = join_all(); code != kSuccess) return code;
  use(*fence_stream_.device);
  const int code = fence_stream_.device->marks->record(fence_stream_.stream, mark);
  if (code != kSuccess) return code;
  last_fence_ = mark;
  ++fences_;
  joined_since_fence_ = false;
  if (only != nullptr) only->fences_waited = fences_;
  return kSuccess;
}

// ---- Callbacks ----------------------------------------------------------------------------------

void RealDriver::complete(Stream& stream, Completions::Callback callback) {
  if (!stream.completions) {
    stream.completions = std::make_unique<Completions>(driver_, stream.device->context);
  }
  Mark mark;
  const int code = stream.device->marks->record(stream.stream, mark);
  complete_on(*stream.completions, std::move(mark), code, std::move(callback));
}

void RealDriver::complete_on(Completions& completions, Mark mark, int code,
                             Completions::Callback callback) {
  completions.push(
      std::move(mark), code,
      [this, callback = std::move(callback)](int reached) {
        output_->drain();  // What was printed goes with the reply.
        callback(reached);
      },
      !deferred_.is_closed());
}

Outcome RealDriver::note(Device& device, int code, std::string message) {
  if (code == kSuccess) return {};
  Outcome outcome{code, std::move(message)};
  if (is_sticky(code)) {
    const std::lock_guard lock(device.mutex);
    if (device.fault.ok()) device.fault = outcome;
  }
  return outcome;
}

Outcome RealDriver::outcome_of(Device& device, int code) {
  Outcome own = note(device, code);
  {
    const std::lock_guard lock(device.mutex);
    if (!device.fault.ok()) return device.fault;
  }
  if (!own.ok()) return own;
  const std::lock_guard lock(late_mutex_);
  return std::exchange(late_failure_, {});
}

void RealDriver::fail_late(const Outcome& outcome) {
  const std::lock_guard lock(late_mutex_);
  if (late_failure_.ok()) late_failure_ = outcome;
}

// ---- Cleaning up --------------------------------------------------------------------------------

void RealDriver::clean_up(Device& device, Mark mark, std::function<void()> work) {
  {
    const std::lock_guard lock(cleanup_mutex_);
    cleanups_.push_back({&device, std::move(mark), std::move(work)});
  }
  cleanup_changed_.notify_all();
}

void RealDriver::run_cleanups() {
  std::unique_lock lock(cleanup_mutex_);
  for (;;) {
    cleanup_changed_.wait(lock, [&] { return closing_ || !cleanups_.empty(); });
    if (closing_) return;
    const Cleanup& cleanup = cleanups_.front();  // Others are only added behind it.
    lock.unlock();
    use(*fence_stream_.device);
    const int code = driver_.synchronize_event(cleanup.mark->event);
    {
      std::unique_lock<std::mutex> exclusion;
      // Of a device that has failed nothing can be freed.
      if (deferred_.exclude(exclusion) && code == kSuccess) {
        use(*cleanup.device);
        cleanup.work();
      }
    }
    lock.lock();
    cleanups_.pop_front();
    cleanup_changed_.notify_all();
  }
}

void RealDriver::finish_cleanups() {
  std::unique_lock lock(cleanup_mutex_);
  cleanup_changed_.wait(lock, [&] { return cleanups_.empty(); });
}

}  // namespace rgpu::server::cuda
