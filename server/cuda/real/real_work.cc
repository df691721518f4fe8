// RealDriver: copies, launches, gates, events.

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/cuda/real/boxes.h"
#include "server/cuda/real_driver.h"
#include "wire/stream.h"

namespace rgpu::server::cuda {
namespace {

namespace calls = wire::cuda;
using calls::Box;
using calls::Extent;

constexpr uint64_t kPieceSizeBytesMax = 16u << 20;  // Of a copy to the device.
constexpr uint64_t kStagingSizeBytes = 1u << 20;    // For small ones, one after another.
constexpr uint64_t kStagedTogetherBytesMax = kStagingSizeBytes / 4;
constexpr uint64_t kStagingAlignBytes = 256;
constexpr uint64_t kSlicesMax = 1u << 16;  // Of a box whose slices are copied one by one.
constexpr size_t kEventsMax = 1u << 20;
constexpr size_t kWatchersMax = 8;  // Of a stream.
constexpr int kNotReady = 600;

}  // namespace

// ---- Copies -------------------------------------------------------------------------------------

std::byte* RealDriver::stage(Stream& stream, uint64_t size_bytes,
                             std::shared_ptr<PinnedBlock>& own_block) {
  const bool may_wait = !deferred_.is_closed();
  if (size_bytes > kStagedTogetherBytesMax) {
    own_block = pinned_->take(size_bytes, may_wait);
    return own_block ? own_block->bytes : nullptr;
  }
  Staging& staging = stream.staging;
  if (!staging.block || staging.used_bytes + size_bytes > staging.block->size_bytes) {
    retire_staging(stream);
    staging.block = pinned_->take(kStagingSizeBytes, may_wait);
    if (!staging.block) return nullptr;
  }
  std::byte* const room = staging.block->bytes + staging.used_bytes;
  staging.used_bytes +=
      (size_bytes + kStagingAlignBytes - 1) / kStagingAlignBytes * kStagingAlignBytes;
  return room;
}

void RealDriver::retire_staging(Stream& stream) {
  if (!stream.staging.block) return;
  complete(stream, [block = std::move(stream.staging.block)](int) {});
  stream.staging = {};
}

Outcome RealDriver::upload(uint32_t stream, Bytes source, const Box& target, const Extent& extent) {
  if (deferred_.pass()) return do_upload(stream, source, target, extent);
  return deferred_.defer([this, stream, source = std::move(source), target, extent] {
    return do_upload(stream, source, target, extent);
  });
}

Outcome RealDriver::do_upload(uint32_t number, const Bytes& source, const Box& target,
                              const Extent& extent) {
  Outcome failed;
  Stream* const stream = stream_for_work(number, failed);
  if (stream == nullptr) return failed;
  if (source.bytes.size() != size_bytes_of(extent)) {
    return {kInvalidValue, "a copy's bytes and its box are of different sizes"};
  }
  const int code = for_each_piece(
      target, extent, kPieceSizeBytesMax,
      [&](const Box& piece, const Extent& size, uint64_t offset) {
        const uint64_t size_bytes = size_bytes_of(size);
        std::shared_ptr<PinnedBlock> own_block;
        std::byte* const staged = stage(*stream, size_bytes, own_block);
        if (staged == nullptr) return static_cast<int>(kOutOfMemory);
        std::memcpy(staged, source.bytes.data() + offset, size_bytes);
        int copied = kSuccess;
        if (is_packed(piece, size)) {
          copied = driver_.copy_to_device(piece.address, staged, size_bytes, stream->stream);
        } else {
          const CuCopy3D copy = copy_3d_of(host_side(staged, size), device_side(piece, size), size);
          copied = driver_.copy_3d(&copy, stream->stream);
        }
        if (own_block) complete(*stream, [block = std::move(own_block)](int) {});
        return copied;
      });
  return note(*stream->device, code);
}

void RealDriver::download(uint32_t stream, const Box& source, const Extent& extent, Download done) {
  const auto refused = [done](const Outcome& outcome) { done(outcome, {}); };
  run_in_order([this, stream, source, extent,
                done = std::move(done)] { return do_download(stream, source, extent, done); },
               refused);
}

Outcome RealDriver::do_download(uint32_t number, const Box& source, const Extent& extent,
                                const Download& done) {
  Outcome failed;
  Stream* const stream = stream_for_work(number, failed);
  if (stream == nullptr) {
    done(failed, {});
    return {};
  }
  const uint64_t size_bytes = size_bytes_of(extent);
  const std::shared_ptr<PinnedBlock> block = pinned_->take(size_bytes, !deferred_.is_closed());
  if (!block) {
    done({kOutOfMemory, "the server has no host memory for " + std::to_string(size_bytes) +
                            " bytes on their way to the client"},
         {});
    return {};
  }
  const int code = for_each_piece(
      source, extent, size_bytes, [&](const Box& piece, const Extent& size, uint64_t offset) {
        std::byte* const target = block->bytes + offset;
        if (is_packed(piece, size)) {
          return driver_.copy_to_host(target, piece.address, size_bytes_of(size), stream->stream);
        }
        const CuCopy3D copy = copy_3d_of(device_side(piece, size), host_side(target, size), size);
        return driver_.copy_3d(&copy, stream->stream);
      });
  (void)note(*stream->device, code);
  complete(*stream, [this, device = stream->device, code, block, size_bytes, done](int reached) {
    const Outcome outcome = outcome_of(*device, code != kSuccess ? code : reached);
    if (!outcome.ok()) return done(outcome, {});
    done(outcome, {{block->bytes, size_bytes}, block});
  });
  return {};
}

Outcome RealDriver::copy(uint32_t stream, const calls::Copy& copy) {
  return deferred_.submit([this, stream, copy] { return do_copy(stream, copy); });
}

Outcome RealDriver::do_copy(uint32_t number, const calls::Copy& copy) {
  Outcome failed;
  Stream* const stream = stream_for_work(number, failed);
  if (stream == nullptr) return failed;
  const Device* const from = device_of(copy.source.address);
  const Device* const to = device_of(copy.target.address);
  const bool is_between = from != nullptr && to != nullptr && from != to;
  if (is_packed(copy.source, copy.extent) && is_packed(copy.target, copy.extent) && !is_between) {
    const uint64_t size_bytes = size_bytes_of(copy.extent);
    if (size_bytes == 0) return {};
    return note(*stream->device, driver_.copy_on_device(copy.target.address, copy.source.address,
                                                        size_bytes, stream->stream));
  }
  const auto copy_box = [&](const Box& source, const Box& target, const Extent& extent) {
    CuCopy3D box = copy_3d_of(device_side(source, extent), device_side(target, extent), extent);
    if (!is_between) return driver_.copy_3d(&box, stream->stream);
    box.source.context = from->context;
    box.target.context = to->context;
    return driver_.copy_3d_peer(&box, stream->stream);
  };
  if (has_whole_slices(copy.source, copy.extent) && has_whole_slices(copy.target, copy.extent)) {
    return note(*stream->device, copy_box(copy.source, copy.target, copy.extent));
  }
  if (copy.extent.depth > kSlicesMax) return {kInvalidValue, "a copy of too many slices"};
  int code = kSuccess;
  for (uint64_t z = 0; z < copy.extent.depth && code == kSuccess; ++z) {
    code = copy_box(slice_of(copy.source, z), slice_of(copy.target, z),
                    {copy.extent.width_bytes, copy.extent.height, 1});
  }
  return note(*stream->device, code);
}

Outcome RealDriver::memset(uint32_t stream, const calls::Memset& memset) {
  return deferred_.submit([this, stream, memset] { return do_memset(stream, memset); });
}

Outcome RealDriver::do_memset(uint32_t number, const calls::Memset& memset) {
  Outcome failed;
  Stream* const stream = stream_for_work(number, failed);
  if (stream == nullptr) return failed;
  const uint32_t unit = memset.value_size_bytes;
  const auto byte = static_cast<unsigned char>(memset.value);
  const auto half = static_cast<unsigned short>(memset.value);
  const uint64_t size_bytes = size_bytes_of(memset.extent);
  const CuStream to = stream->stream;
  if (size_bytes == 0) return {};
  if (is_packed(memset.target, memset.extent)) {
    const uint64_t address = memset.target.address;
    const size_t count = size_bytes / unit;
    return note(*stream->device, unit == 1   ? driver_.fill_8(address, byte, count, to)
                                 : unit == 2 ? driver_.fill_16(address, half, count, to)
                                             : driver_.fill_32(address, memset.value, count, to));
  }
  if (memset.extent.depth > kSlicesMax) return {kInvalidValue, "a memset of too many slices"};
  const size_t pitch = memset.target.row_pitch_bytes;
  const size_t width = memset.extent.width_bytes / unit;
  const size_t height = memset.extent.height;
  int code = kSuccess;
  for (uint64_t z = 0; z < memset.extent.depth && code == kSuccess; ++z) {
    const uint64_t address = slice_of(memset.target, z).address;
    code = unit == 1   ? driver_.fill_2d_8(address, pitch, byte, width, height, to)
           : unit == 2 ? driver_.fill_2d_16(address, pitch, half, width, height, to)
                       : driver_.fill_2d_32(address, pitch, memset.value, width, height, to);
  }
  return note(*stream->device, code);
}

// ---- Launches -----------------------------------------------------------------------------------

Outcome RealDriver::launch(uint32_t stream, const calls::Launch& launch,
                           std::span<const std::byte> parameters) {
  if (deferred_.pass()) return do_launch(stream, launch, parameters);
  return deferred_.defer(
      [this, stream, launch, kept = std::vector<std::byte>(parameters.begin(), parameters.end())] {
        return do_launch(stream, launch, kept);
      });
}

Outcome RealDriver::do_launch(uint32_t number, const calls::Launch& launch,
                              std::span<const std::byte> parameters) {
  const auto found = functions_.find(launch.function);
  if (found == functions_.end()) return {kInvalidHandle, "unknown function"};
  const Function& function = found->second;
  if (parameters.size() != function.parameters_size_bytes) {
    return {kInvalidValue, "a kernel takes " + std::to_string(function.parameters_size_bytes) +
                               " bytes of parameters, not " + std::to_string(parameters.size())};
  }
  Outcome failed;
  Stream* const stream = stream_for_work(number, failed);
  if (stream == nullptr) return failed;
  if (stream->device != function.device) return {kInvalidHandle, "a kernel of another device"};
  // The driver reads each value through its pointer, so the client's layout need not be its own.
  launch_arguments_.clear();
  for (const ::rgpu::cuda::KernelParameter& parameter : function.parameters) {
    launch_arguments_.push_back(const_cast<std::byte*>(parameters.data()) + parameter.offset_bytes);
  }
  const auto& grid = launch.grid;
  const auto& block = launch.block;
  const unsigned shared = launch.dynamic_shared_size_bytes;
  void** const arguments = launch_arguments_.data();
  const bool is_cooperative = (launch.flags & calls::Launch::kCooperative) != 0;
  return note(
      *stream->device,
      is_cooperative
          ? driver_.launch_cooperative(function.function, grid[0], grid[1], grid[2], block[0],
                                       block[1], block[2], shared, stream->stream, arguments)
          : driver_.launch(function.function, grid[0], grid[1], grid[2], block[0], block[1],
                           block[2], shared, stream->stream, arguments, nullptr));
}

// ---- Gates and what is called back
// ----------------------------------------------------------------

void RealDriver::run_in_order(std::function<Outcome()> work, const Callback& refused) {
  const Outcome outcome = deferred_.submit(std::move(work));
  if (!outcome.ok()) refused(outcome);
}

void RealDriver::gate(uint32_t number, uint64_t gate, Callback reached) {
  const Callback refused = reached;
  run_in_order(
      [this, number, gate, reached = std::move(reached)]() -> Outcome {
        Outcome failed;
        Stream* const stream = stream_for_work(number, failed);
        if (stream == nullptr) {
          reached(failed);
          return {};
        }
        complete(*stream, [this, device = stream->device, reached](int code) {
          reached(outcome_of(*device, code));
        });
        // Its failure is told by what comes next: the gate itself has been reached.
        const int code = deferred_.close(driver_, stream->stream, gate);
        if (const Outcome closed = note(*stream->device, code); !closed.ok()) fail_late(closed);
        return {};
      },
      refused);
}

void RealDriver::when_done(uint32_t number, Callback done) {
  const Callback refused = done;
  run_in_order(
      [this, number, done = std::move(done)]() -> Outcome {
        Outcome failed;
        Stream* const stream = find_stream(number, failed);
        if (stream == nullptr) {
          done(failed);
          return {};
        }
        complete(*stream, [this, device = stream->device, done](int code) {
          done(outcome_of(*device, code));
        });
        return {};
      },
      refused);
}

void RealDriver::when_all_done(Callback done) {
  const Callback refused = done;
  run_in_order(
      [this, done = std::move(done)]() -> Outcome {
        const int joined = join_all();
        use(*fence_stream_.device);
        complete(fence_stream_, [this, joined, done](int code) {
          Outcome outcome = outcome_of(*devices_.front(), joined != kSuccess ? joined : code);
          for (const std::unique_ptr<Device>& device : devices_) {
            if (outcome.ok()) outcome = outcome_of(*device, kSuccess);
          }
          done(outcome);
        });
        return {};
      },
      refused);
}

// ---- Events -------------------------------------------------------------------------------------

Outcome RealDriver::record_event(uint32_t number, uint64_t event) {
  return deferred_.submit([this, number, event]() -> Outcome {
    Outcome failed;
    Stream* const stream = stream_for_work(number, failed);
    if (stream == nullptr) return failed;
    if (events_.size() >= kEventsMax) return {kOutOfMemory, "too many events"};
    Mark mark;
    const int code = stream->device->events->record(stream->stream, mark);
    if (code == kSuccess) events_[event] = {stream->device, number, ++recordings_, std::move(mark)};
    return note(*stream->device, code);
  });
}

Outcome RealDriver::wait_event(uint32_t number, uint64_t event) {
  return deferred_.submit([this, number, event]() -> Outcome {
    const auto found = events_.find(event);
    if (found == events_.end()) return {kInvalidHandle, "unknown event"};
    Outcome failed;
    Stream* const stream = stream_for_work(number, failed);
    if (stream == nullptr) return failed;
    return note(*stream->device, driver_.wait_event(stream->stream, found->second.mark->event, 0));
  });
}

Completions& RealDriver::watcher_of(const Recording& recording) {
  std::vector<Watcher>& watchers = streams_[recording.stream].watchers;
  for (Watcher& watcher : watchers) {
    const bool is_later = watcher.last_serial > recording.serial;
    if (is_later && watcher.completions->is_idle())
      watcher.last_serial = 0;
    else if (is_later && watchers.size() < kWatchersMax)
      continue;
    watcher.last_serial = std::max(watcher.last_serial, recording.serial);
    return *watcher.completions;
  }
  watchers.push_back(
      {recording.serial, std::make_unique<Completions>(driver_, recording.device->context)});
  return *watchers.back().completions;
}

void RealDriver::when_reached(uint64_t event, Timed done) {
  const auto refused = [done](const Outcome& outcome) { done(outcome, 0); };
  run_in_order(
      [this, event, done = std::move(done)]() -> Outcome {
        const auto found = events_.find(event);
        if (found == events_.end()) {
          done({kInvalidHandle, "unknown event"}, 0);
          return {};
        }
        const Recording& recording = found->second;
        Device& device = *recording.device;
        use(device);
        const auto tell = [this, &device, mark = recording.mark, done](int code) {
          int64_t time_ns = 0;
          if (code == kSuccess) code = device.clock->time_of(mark, time_ns);
          done(outcome_of(device, code), time_ns);
        };
        // One that was reached is not to wait for others that were asked about before.
        if (const int code = driver_.query_event(recording.mark->event); code != kNotReady) {
          output_->drain();
          tell(code);
          return {};
        }
        complete_on(watcher_of(recording), recording.mark, kSuccess, tell);
        return {};
      },
      refused);
}

void RealDriver::free_event(uint64_t event) {
  (void)deferred_.submit([this, event]() -> Outcome {
    events_.erase(event);
    return {};
  });
}

}  // namespace rgpu::server::cuda
