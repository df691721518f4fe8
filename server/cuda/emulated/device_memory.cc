#include "server/cuda/emulated/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "wire/cuda/calls.h"

namespace rgpu::server::cuda {
namespace {

constexpr uint64_t kPageSizeBytes = 4096;
constexpr uint64_t kMappingGranularity = uint64_t{2} << 20;  // Of cuMemMap.

uint64_t down(uint64_t address) { return address / kPageSizeBytes * kPageSizeBytes; }
uint64_t up(uint64_t address) { return down(address + kPageSizeBytes - 1); }

}  // namespace

DeviceMemory::DeviceMemory(uint64_t base, uint64_t range_size_bytes, uint64_t size_bytes)
    : base_(base),
      own_base_(base + wire::cuda::client_part_size_bytes(range_size_bytes)),
      end_(base + range_size_bytes),
      size_bytes_(size_bytes),
      next_own_(own_base_) {}

Status DeviceMemory::add(uint64_t address, uint64_t size_bytes) {
  if (size_bytes > size_bytes_ - used_bytes_) {
    return {Code::kExhausted, "the emulated device has " +
                                  std::to_string(size_bytes_ - used_bytes_) + " of " +
                                  std::to_string(size_bytes_) + " bytes left"};
  }
  const auto next = blocks_.lower_bound(address);
  const bool overlaps = (next != blocks_.end() && next->first < address + size_bytes) ||
                        (next != blocks_.begin() && std::prev(next)->second > address);
  if (overlaps) return {Code::kInvalidArgument, "device memory there is in use"};
  const uint64_t begin = down(address);
  if (mprotect(reinterpret_cast<void*>(begin), up(address + size_bytes) - begin,
               PROT_READ | PROT_WRITE) != 0) {
    return {Code::kExhausted, "the server has no memory for the emulated device"};
  }
  blocks_.emplace_hint(next, address, address + size_bytes);
  used_bytes_ += size_bytes;
  return {};
}

void DeviceMemory::remove(std::map<uint64_t, uint64_t>::iterator block) {
  const auto [begin, end] = *block;
  used_bytes_ -= end - begin;
  const auto next = blocks_.erase(block);
  // Pages that no neighbour uses go back to the system.
  uint64_t from = down(begin);
  uint64_t to = up(end);
  if (next != blocks_.begin() && std::prev(next)->second > from) from = up(begin);
  if (next != blocks_.end() && next->first < to) to = down(end);
  if (from < to) (void)madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  epoch_->fetch_add(1, std::memory_order_acq_rel);
}

Status DeviceMemory::allocate_at(uint64_t address, uint64_t size_bytes) {
  if (address < base_ || address >= own_base_ || size_bytes == 0 ||
      size_bytes > own_base_ - address) {
    return {Code::kInvalidArgument, "an allocation outside the client's part of the range"};
  }
  const std::unique_lock lock(mutex_);
  return add(address, size_bytes);
}

Status DeviceMemory::free_at(uint64_t address) {
  const std::unique_lock lock(mutex_);
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || address >= own_base_) {
    return {Code::kInvalidArgument, "no allocation begins there"};
  }
  remove(block);
  return {};
}

void DeviceMemory::free_all() {
  const std::unique_lock lock(mutex_);
  while (!blocks_.empty() && blocks_.begin()->first < own_base_) remove(blocks_.begin());
}

uint64_t DeviceMemory::free_size_bytes() const {
  const std::shared_lock lock(mutex_);
  return size_bytes_ - used_bytes_;
}

bool DeviceMemory::holds(uint64_t address, uint64_t size_bytes) const {
  while (size_bytes != 0) {
    const Interval block = find(address);
    if (block.begin == block.end) return false;
    const uint64_t rest = block.end - address;
    if (size_bytes <= rest) return true;
    if (block.begin % kMappingGranularity != 0 || block.end % kMappingGranularity != 0)
      return false;
    address = block.end;
    size_bytes -= rest;
  }
  return true;
}

void DeviceMemory::add_peer(DeviceMemory& peer) {
  peers_.push_back(&peer);
  epoch_ = peer.epoch_;
}

ptx::Memory::Interval DeviceMemory::find(uint64_t address) const {
  if (address >= base_ && address < end_) return find_own(address);
  for (const DeviceMemory* const peer : peers_) {
    if (address >= peer->base_ && address < peer->end_) return peer->find_own(address);
  }
  return {};
}

ptx::Memory::Interval DeviceMemory::find_own(uint64_t address) const {
  const std::shared_lock lock(mutex_);
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return {};
  --block;
  if (address >= block->second) return {};
  return {block->first, block->second};
}

Result<uint64_t> DeviceMemory::allocate(uint64_t size_bytes, uint64_t alignment) {
  size_bytes = std::max<uint64_t>(size_bytes, 1);
  alignment = std::max<uint64_t>(alignment, 16);
  if (size_bytes > end_ - own_base_ || alignment > kPageSizeBytes ||
      (alignment & (alignment - 1)) != 0) {
    return Status(Code::kExhausted, "no room for " + std::to_string(size_bytes) + " bytes");
  }
  const std::unique_lock lock(mutex_);
  // First fit from where the last one was found, and then once more from the beginning.
  for (int round = 0; round < 2; ++round) {
    uint64_t at = round == 0 ? next_own_ : own_base_;
    auto next = blocks_.lower_bound(at);
    if (next != blocks_.begin() && std::prev(next)->second > at) at = std::prev(next)->second;
    for (;; ++next) {
      at = (at + alignment - 1) / alignment * alignment;
      const uint64_t room_end = next == blocks_.end() ? end_ : next->first;
      if (at <= room_end && size_bytes <= room_end - at) {
        if (Status added = add(at, size_bytes); !added.ok()) return added;
        next_own_ = at + size_bytes;
        return at;
      }
      if (next == blocks_.end()) break;
      at = next->second;
    }
  }
  return Status(Code::kExhausted, "no room for " + std::to_string(size_bytes) + " bytes");
}

bool DeviceMemory::free(uint64_t address) {
  const std::unique_lock lock(mutex_);
  const auto block = blocks_.find(address);
  if (block == blocks_.end() || address < own_base_) return false;
  remove(block);
  return true;
}

}  // namespace rgpu::server::cuda
