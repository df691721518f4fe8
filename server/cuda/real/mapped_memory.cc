#include "server/cuda/real/mapped_memory.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace rgpu::server::cuda {

uint64_t MappedMemory::down(uint64_t address) const {
  return address / place_.granularity_bytes * place_.granularity_bytes;
}
uint64_t MappedMemory::up(uint64_t address) const {
  return down(address + place_.granularity_bytes - 1);
}

MappedMemory::~MappedMemory() {
  while (!pieces_.empty()) remove_piece(pieces_.begin());
  (void)driver_.unreserve(place_.base, place_.size_bytes);
}

MappedMemory::Pieces::const_iterator MappedMemory::first_behind(uint64_t address) const {
  auto piece = pieces_.upper_bound(address);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > address) --piece;
  return piece;
}

Outcome MappedMemory::add_piece(uint64_t begin, uint64_t end) {
  const CuMemoryProperties properties{.location = {.device = place_.device}};
  const size_t size_bytes = end - begin;
  CuMemory memory = 0;
  int code = driver_.create_memory(&memory, size_bytes, &properties, 0);
  if (code != kSuccess) return {code, {}};
  code = driver_.map(begin, size_bytes, 0, memory, 0);
  if (code == kSuccess) {
    code = driver_.set_access(begin, size_bytes, place_.access.data(), place_.access.size());
    if (code == kSuccess) {
      pieces_[begin] = {end, memory, 0, 0};
      return {};
    }
    (void)driver_.unmap(begin, size_bytes);
  }
  (void)driver_.release_memory(memory);
  return {code, "memory of " + std::to_string(size_bytes) + " bytes could not be mapped"};
}

void MappedMemory::remove_piece(Pieces::iterator piece) {
  (void)driver_.unmap(piece->first, piece->second.end - piece->first);
  (void)driver_.release_memory(piece->second.memory);
  pieces_.erase(piece);
}

Outcome MappedMemory::allocate(uint64_t address, uint64_t size_bytes) {
  if (address < place_.base || address - place_.base >= place_.size_bytes || size_bytes == 0 ||
      size_bytes > place_.size_bytes - (address - place_.base)) {
    return {kInvalidValue, "an allocation outside the client's part of the address range"};
  }
  const std::lock_guard lock(mutex_);
  const auto next = allocations_.lower_bound(address);
  if ((next != allocations_.end() && next->first < address + size_bytes) ||
      (next != allocations_.begin() &&
       std::prev(next)->first + std::prev(next)->second > address)) {
    return {kInvalidValue, "device memory there is in use"};
  }
  const uint64_t begin = down(address);
  const uint64_t end = up(address + size_bytes);
  std::vector<std::pair<uint64_t, uint64_t>> gaps;
  uint64_t covered = begin;
  for (auto piece = first_behind(begin); piece != pieces_.end() && piece->first < end; ++piece) {
    if (covered < piece->first) gaps.emplace_back(covered, piece->first);
    covered = piece->second.end;
  }
  if (covered < end) gaps.emplace_back(covered, end);
  for (size_t i = 0; i < gaps.size(); ++i) {
    if (const Outcome added = add_piece(gaps[i].first, gaps[i].second); !added.ok()) {
      while (i != 0) remove_piece(pieces_.find(gaps[--i].first));
      return added;
    }
    unused_bytes_ += gaps[i].second - gaps[i].first;
  }
  for (auto at = first_behind(begin); at != pieces_.end() && at->first < end; ++at) {
    Piece& piece = pieces_.find(at->first)->second;
    if (piece.users++ == 0) unused_bytes_ -= piece.end - at->first;
  }
  allocations_[address] = size_bytes;
  return {};
}

bool MappedMemory::is_in_the_way(uint64_t address, uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  const uint64_t begin = down(address);
  const uint64_t end = up(address + size_bytes);
  for (auto piece = first_behind(begin); piece != pieces_.end() && piece->first < end; ++piece) {
    if (piece->second.users == 0 && (piece->first < begin || piece->second.end > end)) return true;
  }
  return false;
}

void MappedMemory::drop_users(uint64_t begin, uint64_t end, std::vector<Unused>& unused) {
  for (auto at = first_behind(begin); at != pieces_.end() && at->first < end; ++at) {
    Piece& piece = pieces_.find(at->first)->second;
    if (--piece.users != 0) continue;
    piece.serial = ++serials_;
    unused_bytes_ += piece.end - at->first;
    unused.push_back({at->first, piece.serial});
  }
}

Outcome MappedMemory::free(uint64_t address, std::vector<Unused>& unused) {
  const std::lock_guard lock(mutex_);
  const auto allocation = allocations_.find(address);
  if (allocation == allocations_.end()) return {kInvalidValue, "no allocation begins there"};
  const uint64_t size_bytes = allocation->second;
  allocations_.erase(allocation);
  drop_users(down(address), up(address + size_bytes), unused);
  return {};
}

void MappedMemory::free_all(std::vector<Unused>& unused) {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, size_bytes] : allocations_) {
    drop_users(down(address), up(address + size_bytes), unused);
  }
  allocations_.clear();
}

void MappedMemory::release(const std::vector<Unused>& unused) {
  const std::lock_guard lock(mutex_);
  for (const Unused& was : unused) {
    const auto piece = pieces_.find(was.begin);
    if (piece == pieces_.end() || piece->second.users != 0 || piece->second.serial != was.serial) {
      continue;
    }
    unused_bytes_ -= piece->second.end - piece->first;
    remove_piece(piece);
  }
}

uint64_t MappedMemory::unused_bytes() const {
  const std::lock_guard lock(mutex_);
  return unused_bytes_;
}

}  // namespace rgpu::server::cuda
