#include "server/torch/accelerator_executor.h"

#include <c10/core/StreamGuard.h>

#include <utility>

namespace rgpu::server {

AcceleratorExecutor::Lane& AcceleratorExecutor::lane_of(uint32_t stream) {
  const auto found = lanes_.find(stream);
  if (found != lanes_.end()) return found->second;
  // The client's default stream is the device's own; the others come from PyTorch's pool.
  const c10::Stream target =
      stream == 0 ? guard_.getDefaultStream(device_) : guard_.getStreamFromGlobalPool(device_);
  return lanes_.emplace(stream, Lane{target, c10::Event(device_.type())}).first->second;
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
