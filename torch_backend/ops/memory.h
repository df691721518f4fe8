// The server's memory: how much the session's tensors hold there, and giving back what is kept.
//
// Threading: any thread.
// Errors:    an index that the server lacks; what a wait of Client's raises.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace rgpu::backend {

struct MemoryStat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t added = 0;
  int64_t removed = 0;
};

struct MemoryInfo {
  MemoryStat bytes;
  MemoryStat storages;
  MemoryStat reserved_bytes;  // With what the server keeps of freed memory.
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  int64_t out_of_memory_count = 0;
};

// After everything issued so far. One wait.
[[nodiscard]] MemoryInfo memory_info(c10::DeviceIndex device);

// Records like ops: none of them waits, and what is not connected has nothing to reset.
void empty_cache();  // Here and on the server, of all devices.
void reset_peak_memory(c10::DeviceIndex device);
void reset_total_memory(c10::DeviceIndex device);

}  // namespace rgpu::backend
