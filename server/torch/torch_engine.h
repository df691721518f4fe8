// TorchEngine: decodes batches in session order and hands their records to the streams.
//
// No PyTorch header is needed to use it.
// Threading: as server/engine.h says of an Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/worker_context.h"
#include "wire/status.h"

namespace rgpu::server {

struct TorchEngineOptions {
  std::string device = "cpu";       // "auto" only for resolve_device_type().
  uint32_t devices = 1;             // Logical devices of the CPU.
  uint32_t threads = 0;             // ATen threads; 0: one per core.
  uint64_t memory_limit_bytes = 0;  // Of the session's handles on each device; 0: none.
  std::string graph_cache = {};     // A folder for graphs and what they compile to; "": none.
  uint64_t graph_cache_size_bytes = uint64_t{2} << 30;
  std::string compiler = {};  // A Python that has rgpu_compile; "": graphs are interpreted.
};

// "cpu" or an accelerator's name. Initialises no accelerator in this process: it asks in a child.
[[nodiscard]] Result<std::string> resolve_device_type(const TorchEngineOptions& options);
[[nodiscard]] const char* torch_version() noexcept;  // "2.13.0"

// Throws std::exception when the device does not work.
[[nodiscard]] std::unique_ptr<Engine> make_torch_engine(const TorchEngineOptions& options,
                                                        const EngineContext& context);

}  // namespace rgpu::server
