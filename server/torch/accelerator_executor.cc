#include "server/torch/accelerator_executor.h"

#include <c10/core/StreamGuard.h>

#include <optional>
#include <utility>

#include "wire/stream.h"

namespace rgpu::server {

AcceleratorExecutor::Lane& AcceleratorExecutor::lane_of(uint32_t stream) {
  const auto found = lanes_.find(stream);
  if (found != lanes_.end()) return found->second;
  // The client's default stream is the device's own; the others come from PyTorch's pool.
  const c10::Device device(guard_.type(),
                           static_cast<c10::DeviceIndex>(wire::device_of_stream(stream)));
  const c10::Stream target = wire::index_of_stream(stream) == 0
                                 ? guard_.getDefaultStream(device)
                                 : guard_.getStreamFromGlobalPool(device);
  return lanes_.emplace(stream, Lane{target, c10::Event(device.type())}).first->second;
}

void AcceleratorExecutor::drain() {
  std::optional<uint32_t> done;  // Lanes are in the order of their devices.
  for (const auto& [stream, lane] : lanes_) {
    const uint32_t device = wire::device_of_stream(stream);
    if (done != device) guard_.synchronizeDevice(static_cast<c10::DeviceIndex>(device));
    done = device;
  }
}

void AcceleratorExecutor::submit(std::unique_ptr<Run> run) {
  Lane& lane = lane_of(run->stream);
  for (const Run::After& after : run->after) {
    Lane& before = lane_of(after.stream);
    // An event behind a later run than asked for waits a little longer, and saves a second one.
    if (before.event_run_id < after.id) {
      before.event.record(before.stream);
      before.event_run_id = before.last_run_id;
    }
    before.event.block(lane.stream);
  }
  const c10::StreamGuard current(lane.stream);
  lane.last_run_id = run->id;
  run->execute();
}

}  // namespace rgpu::server
