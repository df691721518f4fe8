// AcceleratorExecutor: one client stream is one stream of PyTorch's pool of the stream's device.
//
// Device-generic: it knows c10's guard, Stream and Event, and no vendor's header. Runs are launched
// from the decode thread; the device orders them.
//
// Threading: the decode thread's alone.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <map>
#include <memory>

#include "server/executor.h"

namespace rgpu::server {

class AcceleratorExecutor final : public Executor {
 public:
  explicit AcceleratorExecutor(c10::DeviceType type) : guard_(type) {}
  void submit(std::unique_ptr<Run> run) override;
  void drain() override;  // The devices that were used.

 private:
  struct Lane {
    c10::Stream stream;
    c10::Event event;
    uint64_t event_run_id = 0;  // The event was recorded behind this run.
    uint64_t last_run_id = 0;   // Launched last.
  };
  Lane& lane_of(uint32_t stream);

  const c10::impl::VirtualGuardImpl guard_;
  std::map<uint32_t, Lane> lanes_;
};

}  // namespace rgpu::server
