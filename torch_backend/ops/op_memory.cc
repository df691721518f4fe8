#include "torch_backend/ops/op_memory.h"

#include <cstring>

namespace rgpu::backend {

OpMemory::OpMemory() : slots_(4096, nullptr) {}

OpEntry* OpMemory::find(std::span<const uint64_t> key, uint64_t hash) const noexcept {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] != nullptr; i = (i + 1) & mask) {
    OpEntry* entry = slots_[i];
    // Whole keys are compared: two calls whose hashes agree must not share a result.
    if (entry->hash == hash && entry->key.size() == key.size() &&
        std::memcmp(entry->key.data(), key.data(), key.size_bytes()) == 0) {
      return entry;
    }
  }
  return nullptr;
}

OpEntry* OpMemory::insert(std::unique_ptr<OpEntry> entry) {
  if (OpEntry* present = find(entry->key, entry->hash)) return present;
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  size_t i = entry->hash & mask;
  while (slots_[i] != nullptr) i = (i + 1) & mask;
  slots_[i] = entry.get();
  entries_.push_back(std::move(entry));
  return entries_.back().get();
}

void OpMemory::grow() {
  std::vector<OpEntry*> slots(slots_.size() * 2, nullptr);
  const size_t mask = slots.size() - 1;
  for (const std::unique_ptr<OpEntry>& entry : entries_) {
    size_t i = entry->hash & mask;
    while (slots[i] != nullptr) i = (i + 1) & mask;
    slots[i] = entry.get();
  }
  slots_ = std::move(slots);
}

void OpMemory::forget() {
  std::fill(slots_.begin(), slots_.end(), nullptr);
  entries_.clear();
}

}  // namespace rgpu::backend
