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
#include <mutex>

#include "server/torch/slot.h"
#include "server/trace.h"
#include "server/worker_context.h"

namespace rgpu::server {

struct EngineState {
  explicit EngineState(const EngineContext& engine_context) : context(engine_context) {}

  // Contents undefined. Throws c10::Error or std::bad_alloc where there is no memory.
  [[nodiscard]] c10::Storage allocate(uint64_t size_bytes) const {
    return {c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(size_bytes)),
            allocator->allocate(size_bytes), allocator, /*resizable=*/true};
  }

  const EngineContext context;
  c10::Device device{c10::DeviceType::CPU};
  c10::Allocator* allocator = nullptr;
  MemoryLedger ledger;
  ErrorLog errors;
  Trace trace;
  std::mutex random_mutex;  // Seed and launch are one step: the generator is process-wide.
  std::atomic<bool> flush_denormal = false;  // Of every thread that runs records.
  std::atomic<bool> ended = false;           // The session failed: skip whatever is still queued.
};

}  // namespace rgpu::server
