// EngineState: what all streams of one session share.
//
// Threading: each member says so itself, or is constant.
// Lifetime:  outlives every stream.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "server/torch/memory_ledger.h"
#include "server/torch/slot.h"
#include "server/torch/stored_graph.h"
#include "server/trace.h"
#include "server/worker_context.h"
#include "wire/stream.h"

namespace rgpu::server {

struct EngineState {
  explicit EngineState(const EngineContext& engine_context) : context(engine_context) {}

  [[nodiscard]] bool on_cpu() const noexcept { return device_type == c10::DeviceType::CPU; }
  // PyTorch's device `index`; the CPU's logical devices are all one to it.
  [[nodiscard]] c10::Device device(uint32_t index) const {
    return on_cpu() ? c10::Device(device_type)
                    : c10::Device(device_type, static_cast<c10::DeviceIndex>(index));
  }
  [[nodiscard]] MemoryLedger& ledger_of(uint32_t stream) {
    return ledgers[wire::device_of_stream(stream)];
  }

  // On the current device. Contents undefined. Throws c10::Error or std::bad_alloc where there is
  // no memory.
  [[nodiscard]] c10::Storage allocate(uint64_t size_bytes) const {
    return {c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(size_bytes)),
            allocator->allocate(size_bytes), allocator, /*resizable=*/true};
  }
  // The same within the limit of the ledger, in which it will be a handle's.
  [[nodiscard]] c10::Storage allocate(uint64_t size_bytes, MemoryLedger& ledger) const {
    const MemoryLedger::Reservation room = ledger.reserve(size_bytes);
    return allocate(size_bytes);
  }

  const EngineContext context;
  c10::DeviceType device_type{c10::DeviceType::CPU};
  c10::Allocator* allocator = nullptr;
  std::deque<MemoryLedger> ledgers;    // One for each device; constant once made.
  std::string client_torch_version;    // Of the session; constant once it was greeted.
  std::unique_ptr<GraphShelf> graphs;  // Constant once made.
  ErrorLog errors;
  Trace trace;
  std::mutex random_mutex;  // Seed and launch are one step: the generator is process-wide.
  std::atomic<bool> flush_denormal = false;  // Of every thread that runs records.
  std::atomic<bool> ended = false;           // The session failed: skip whatever is still queued.
};

}  // namespace rgpu::server
