// DeviceMemory: an emulated device's memory: host memory at the very addresses that the client
// chose.
//
// The device's part of the agreed range is reserved as a whole and unreadable; allocating makes
// pages of it readable. The last eighth of it is the device's own: variables of modules, and
// malloc() in kernels.
//
// Threading: any thread.
// Lifetime:  the range is the caller's, who reserved it and unmaps it.
// Errors:    kExhausted over the device's size; kInvalidArgument for what overlaps or lies outside.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "server/cuda/emulated/ptx_module.h"
#include "wire/status.h"

namespace rgpu::server::cuda {

class DeviceMemory final : public ptx::Memory {
 public:
  DeviceMemory(uint64_t base, uint64_t range_size_bytes, uint64_t size_bytes);

  // The client's part.
  [[nodiscard]] Status allocate_at(uint64_t address, uint64_t size_bytes);
  [[nodiscard]] Status free_at(uint64_t address);
  void free_all();  // Of the client's part.
  [[nodiscard]] uint64_t free_size_bytes() const;
  [[nodiscard]] uint64_t size_bytes() const noexcept { return size_bytes_; }
  // Once for each, before anything is allocated: what kernels may reach as well as this.
  void add_peer(DeviceMemory& peer);
  // Whether all of it lies in one live allocation, or in such that a program may have mapped one
  // behind the other; a peer's included.
  [[nodiscard]] bool holds(uint64_t address, uint64_t size_bytes) const;

  // ptx::Memory
  [[nodiscard]] Interval find(uint64_t address) const override;
  [[nodiscard]] Result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment) override;
  [[nodiscard]] bool free(uint64_t address) override;
  [[nodiscard]] uint64_t epoch() const override { return epoch_->load(std::memory_order_acquire); }

 private:
  [[nodiscard]] Interval find_own(uint64_t address) const;
  [[nodiscard]] Status add(uint64_t address, uint64_t size_bytes);  // Under mutex_, as the next.
  void remove(std::map<uint64_t, uint64_t>::iterator block);

  const uint64_t base_;
  const uint64_t own_base_;  // From here on the device's own.
  const uint64_t end_;
  const uint64_t size_bytes_;
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, uint64_t> blocks_;  // Begin to end; live, disjoint.
  uint64_t used_bytes_ = 0;
  uint64_t next_own_;  // Where the search for room of the device's own begins.
  std::vector<const DeviceMemory*> peers_;
  // One for all peers: what was found in one of them is remembered with what was found here.
  std::shared_ptr<std::atomic<uint64_t>> epoch_ = std::make_shared<std::atomic<uint64_t>>(1);
};

}  // namespace rgpu::server::cuda
