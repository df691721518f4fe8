// MemoryPool: device memory that is given and taken back in the order of streams.
//
// Memory that was given back is kept, and given again at once on the stream that it was given back
// on: what was issued there before comes first. Once that stream is known to have got there, any
// stream may have it, and at the next synchronization what is kept beyond the pool's release
// threshold is freed. Nothing here waits or asks.
//
// Threading: any thread.
// Lifetime:  handles as HandleTable says. Memory outlives its pool until it is given back.
// Errors:    CUresult.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/handle_table.h"

namespace rgpu::cuda {

struct PoolBlock {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint32_t stream = 0;    // The wire's number of the one it was given back on,
  uint64_t position = 0;  // and the place in its ring.
};

class PoolMemory {
 public:
  PoolMemory(Device& device, uint64_t size_bytes_max)
      : device_(device), size_bytes_max_(size_bytes_max) {}

  [[nodiscard]] CUresult allocate(Client& client, uint32_t stream, uint64_t size_bytes,
                                  uint64_t& address);
  // CUDA_ERROR_INVALID_VALUE: not of this pool, or given back already.
  [[nodiscard]] CUresult give_back(Client& client, uint32_t stream, uint64_t address);
  // It is freed by other means. CUDA_ERROR_NOT_FOUND: it is not of this pool;
  // CUDA_ERROR_INVALID_VALUE: it was given back.
  [[nodiscard]] CUresult forget(uint64_t address);
  void trim(Client& client, uint64_t kept_size_bytes);
  void trim_to_threshold(Client& client);
  void close(Client& client);  // Its handle is gone.
  void clear();                // The device was reset.
  [[nodiscard]] bool holds(uint64_t address) const;
  [[nodiscard]] bool is_spent() const;  // Closed, and all of it was given back.

  [[nodiscard]] CUresult attribute(CUmemPool_attribute attribute, void* value) const;
  [[nodiscard]] CUresult set_attribute(CUmemPool_attribute attribute, const void* value);
  [[nodiscard]] CUmemAccess_flags access(const Device& device) const;
  void set_access(const Device& device, CUmemAccess_flags flags);
  [[nodiscard]] Device& device() const noexcept { return device_; }

 private:
  // All under mutex_.
  void release(Client& client, uint64_t kept_size_bytes);
  void release_all(Client& client);
  void free_block(Client& client, std::multimap<uint64_t, PoolBlock>::iterator block);
  [[nodiscard]] uint64_t reserved_bytes() const noexcept { return used_bytes_ + kept_bytes_; }
  void note_highs() noexcept;

  Device& device_;
  const uint64_t size_bytes_max_;            // 0: no bound of its own.
  mutable std::mutex mutex_;                 // Guards what follows.
  std::map<uint64_t, uint64_t> used_;        // Address to size.
  std::multimap<uint64_t, PoolBlock> kept_;  // By size.
  uint64_t used_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  uint64_t used_high_bytes_ = 0;
  uint64_t reserved_high_bytes_ = 0;
  uint64_t release_threshold_bytes_ = 0;
  std::array<int, 3> reuse_{1, 1, 1};
  std::vector<std::pair<const Device*, CUmemAccess_flags>> access_;
  bool closed_ = false;
};

struct MemoryPool {
  std::shared_ptr<PoolMemory> memory;
  bool is_default = false;
};

[[nodiscard]] HandleTable<MemoryPool>& memory_pools();
[[nodiscard]] CUresult create_pool(Device& device, uint64_t size_bytes_max, MemoryPool*& pool);
[[nodiscard]] CUresult destroy_pool(Client& client, MemoryPool& pool);
[[nodiscard]] CUresult default_pool(Device& device, MemoryPool*& pool);
// What cuMemAllocAsync takes from.
[[nodiscard]] CUresult current_pool(Device& device, MemoryPool*& pool);
void set_current_pool(Device& device, MemoryPool& pool);

// ---- For those that free and wait
[[nodiscard]] CUresult give_back(Client& client, uint32_t stream, uint64_t address);
[[nodiscard]] CUresult forget_pool_memory(uint64_t address);  // As PoolMemory::forget().
// The pool whose memory holds the address; nullptr: none.
[[nodiscard]] MemoryPool* pool_of(uint64_t address);
void trim_pools(Client& client);  // After a synchronization.
void clear_pools(Device& device);

}  // namespace rgpu::cuda
