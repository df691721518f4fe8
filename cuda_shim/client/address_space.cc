#include "cuda_shim/client/address_space.h"

#include <algorithm>
#include <iterator>

namespace rgpu::cuda {
namespace {

constexpr uint64_t kGranularity = 512;
constexpr uint64_t kLarge = uint64_t{1} << 20;
constexpr uint64_t kLargeGranularity = uint64_t{2} << 20;

uint64_t up(uint64_t value, uint64_t granularity) {
  return (value + granularity - 1) / granularity * granularity;
}

}  // namespace

AddressSpace::AddressSpace(uint64_t base, uint64_t size_bytes, uint64_t memory_size_bytes)
    : base_(base), end_(base + size_bytes), memory_size_bytes_(memory_size_bytes) {
  add_free(base_, end_);
}

void AddressSpace::add_free(uint64_t begin, uint64_t end) {
  free_[begin] = end;
  by_size_.emplace(end - begin, begin);
}

void AddressSpace::remove_free(std::map<uint64_t, uint64_t>::iterator block) {
  by_size_.erase({block->second - block->first, block->first});
  free_.erase(block);
}

void AddressSpace::merge_free(uint64_t begin, uint64_t end) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    const auto merged = next++;
    remove_free(merged);
  }
  if (next != free_.begin()) {
    if (const auto before = std::prev(next); before->second == begin) {
      begin = before->first;
      remove_free(before);
    }
  }
  add_free(begin, end);
}

void AddressSpace::cut_free(uint64_t block_begin, uint64_t begin, uint64_t end) {
  const auto block = free_.find(block_begin);
  const uint64_t block_end = block->second;
  remove_free(block);
  if (block_begin < begin) add_free(block_begin, begin);
  if (end < block_end) add_free(end, block_end);
}

uint64_t AddressSpace::allocate(uint64_t size_bytes, uint64_t owner) {
  const std::lock_guard lock(mutex_);
  if (size_bytes > memory_size_bytes_ - used_bytes_) return 0;
  const uint64_t granularity = size_bytes >= kLarge ? kLargeGranularity : kGranularity;
  const uint64_t room = up(size_bytes, granularity);
  // The smallest block that holds it, aligned.
  for (auto at = by_size_.lower_bound({room, 0}); at != by_size_.end(); ++at) {
    const uint64_t begin = at->second;
    const uint64_t end = begin + at->first;
    const uint64_t address = up(begin, granularity);
    if (address + room > end) continue;
    cut_free(begin, address, address + room);
    used_[address] = {address, size_bytes, ++serials_, owner, false};
    used_bytes_ += size_bytes;
    return address;
  }
  return 0;
}

bool AddressSpace::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end() || address >= end_ || found->second.mapped) return false;
  const uint64_t size_bytes = found->second.size_bytes;
  used_.erase(found);
  used_bytes_ -= size_bytes;
  merge_free(address,
             address + up(size_bytes, size_bytes >= kLarge ? kLargeGranularity : kGranularity));
  return true;
}

// ---- Addresses and memory apart -----------------------------------------------------------------

uint64_t AddressSpace::reserve(uint64_t size_bytes, uint64_t alignment, uint64_t wanted) {
  const std::lock_guard lock(mutex_);
  alignment = std::max(alignment, kLargeGranularity);
  if (size_bytes == 0 || size_bytes > end_ - base_) return 0;
  if (wanted % alignment == 0 && wanted >= base_ && wanted < end_) {
    auto block = free_.upper_bound(wanted);
    if (block != free_.begin() && (--block)->second >= wanted + size_bytes) {
      cut_free(block->first, wanted, wanted + size_bytes);
      reserved_[wanted] = wanted + size_bytes;
      return wanted;
    }
  }
  for (auto at = by_size_.lower_bound({size_bytes, 0}); at != by_size_.end(); ++at) {
    const uint64_t begin = at->second;
    const uint64_t address = up(begin, alignment);
    if (address < begin || address + size_bytes > begin + at->first) continue;
    cut_free(begin, address, address + size_bytes);
    reserved_[address] = address + size_bytes;
    return address;
  }
  return 0;
}

bool AddressSpace::release(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(address);
  if (found == reserved_.end() || found->second != address + size_bytes) return false;
  const auto used = used_.lower_bound(address);
  if (used != used_.end() && used->first < found->second) return false;
  reserved_.erase(found);
  merge_free(address, address + size_bytes);
  return true;
}

bool AddressSpace::take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (size_bytes > memory_size_bytes_ - used_bytes_) return false;
  used_bytes_ += size_bytes;
  return true;
}

void AddressSpace::give_back(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= std::min(used_bytes_, size_bytes);  // A reset has forgotten all.
}

bool AddressSpace::map(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  auto within = reserved_.upper_bound(address);
  if (size_bytes == 0 || within == reserved_.begin()) return false;
  --within;
  if (address >= within->second || size_bytes > within->second - address) return false;
  const auto next = used_.lower_bound(address);
  if (next != used_.end() && next->first < address + size_bytes) return false;
  if (find_locked(address).size_bytes != 0) return false;
  used_[address] = {address, size_bytes, ++serials_, 0, true};
  return true;
}

bool AddressSpace::unmap(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end() || !found->second.mapped) return false;
  used_.erase(found);
  return true;
}

void AddressSpace::add_foreign(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  used_[address] = {address, size_bytes, ++serials_, 0, false};
}

std::vector<uint64_t> AddressSpace::owned_by(uint64_t owner) const {
  std::vector<uint64_t> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, allocation] : used_) {
    if (allocation.owner == owner) found.push_back(address);
  }
  return found;
}

void AddressSpace::clear() {
  const std::lock_guard lock(mutex_);
  used_.clear();
  free_.clear();
  by_size_.clear();
  reserved_.clear();
  used_bytes_ = 0;
  add_free(base_, end_);
}

Allocation AddressSpace::find_locked(uint64_t address) const {
  auto at = used_.upper_bound(address);
  if (at == used_.begin()) return {};
  --at;
  return address - at->first < at->second.size_bytes ? at->second : Allocation{};
}

Allocation AddressSpace::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return find_locked(address);
}

bool AddressSpace::holds(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const Allocation allocation = find_locked(address);
    if (allocation.size_bytes == 0) return false;
    const uint64_t rest = allocation.size_bytes - (address - allocation.address);
    if (size_bytes <= rest) return true;
    if (!allocation.mapped) return false;
    address += rest;
    size_bytes -= rest;
    if (!find_locked(address).mapped) return false;
  }
}

uint64_t AddressSpace::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace rgpu::cuda
