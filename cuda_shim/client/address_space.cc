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
    remove_free(free_.find(begin));
    if (begin < address) add_free(begin, address);
    if (address + room < end) add_free(address + room, end);
    used_[address] = {address, size_bytes, ++serials_, owner};
    used_bytes_ += size_bytes;
    return address;
  }
  return 0;
}

bool AddressSpace::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end() || address >= end_) return false;
  const uint64_t size_bytes = found->second.size_bytes;
  used_.erase(found);
  used_bytes_ -= size_bytes;
  uint64_t begin = address;
  uint64_t end = address + up(size_bytes, size_bytes >= kLarge ? kLargeGranularity : kGranularity);
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
  return true;
}

void AddressSpace::add_foreign(uint64_t address, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  used_[address] = {address, size_bytes, ++serials_, 0};
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
  used_bytes_ = 0;
  add_free(base_, end_);
}

Allocation AddressSpace::find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto at = used_.upper_bound(address);
  if (at == used_.begin()) return {};
  --at;
  return address - at->first < at->second.size_bytes ? at->second : Allocation{};
}

uint64_t AddressSpace::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace rgpu::cuda
