// The device's memory, for the CPU and for accelerators alike.
//
// Threading: any thread. Functions that copy throw c10::Error when the device fails.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/engine.h"
#include "wire/messages.h"

namespace rgpu::server {

struct MemoryFigures {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  uint64_t kept_bytes = 0;  // Freed, and kept for the next allocation. The CPU's devices share it.
};
[[nodiscard]] MemoryFigures memory_figures(c10::Device device);
// `memory_limit_bytes` 0: none.
[[nodiscard]] std::vector<wire::DeviceInfo> device_infos(c10::DeviceType type, uint32_t count,
                                                         uint64_t memory_limit_bytes);
// Gives back what the process keeps of freed memory, on all devices.
void empty_cache(c10::DeviceType type);

// Host memory for a payload on its way in, such that adopt_segment() can make it a storage.
[[nodiscard]] Segment make_segment(uint64_t size_bytes);
[[nodiscard]] c10::Storage adopt_segment(Segment segment, c10::Allocator* allocator);

// On the current stream of the storage's device. Ranges are within the storages and not empty.
void copy_bytes(const c10::Storage& target, uint64_t target_offset_bytes,
                const c10::Storage& source, uint64_t source_offset_bytes, uint64_t size_bytes);
void write_bytes(const c10::Storage& target, uint64_t offset_bytes,
                 std::span<const std::byte> source);
void read_bytes(const c10::Storage& source, uint64_t offset_bytes, std::span<std::byte> target);

// The storage was allocated on another stream than the current one, which uses it now: its memory
// must not be used again before that is done. Nothing to do on the CPU.
void keep_until_stream_is_done(const c10::Storage& storage);
// Both have nothing to do on the CPU.
void synchronize(c10::Device device);
void synchronize_current_stream(c10::Device device);

}  // namespace rgpu::server
