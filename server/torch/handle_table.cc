#include "server/torch/handle_table.h"

#include <utility>

namespace rgpu::server {

const SlotPtr* HandleTable::find(wire::Handle handle) const noexcept {
  for (size_t at = home(handle);; at = (at + 1) & (entries_.size() - 1)) {
    if (entries_[at].handle == handle) return &entries_[at].slot;
    if (entries_[at].handle == 0) return nullptr;
  }
}

bool HandleTable::insert(wire::Handle handle, SlotPtr slot) {
  if ((size_ + 1) * 2 > entries_.size()) grow();
  size_t at = home(handle);
  for (; entries_[at].handle != 0; at = (at + 1) & (entries_.size() - 1)) {
    if (entries_[at].handle == handle) return false;
  }
  entries_[at] = {handle, std::move(slot)};
  ++size_;
  return true;
}

SlotPtr HandleTable::erase(wire::Handle handle) noexcept {
  const size_t mask = entries_.size() - 1;
  size_t hole = home(handle);
  for (; entries_[hole].handle != handle; hole = (hole + 1) & mask) {
    if (entries_[hole].handle == 0) return nullptr;
  }
  SlotPtr slot = std::move(entries_[hole].slot);
  // Close the gap: later entries of the chain move up unless they are at home already.
  for (size_t at = (hole + 1) & mask; entries_[at].handle != 0; at = (at + 1) & mask) {
    const size_t distance = (at - home(entries_[at].handle)) & mask;
    if (distance < ((at - hole) & mask)) continue;
    entries_[hole] = std::move(entries_[at]);
    hole = at;
  }
  entries_[hole] = {};
  --size_;
  return slot;
}

void HandleTable::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  size_ = 0;
  for (Entry& entry : old) {
    if (entry.handle != 0) RGPU_CHECK(insert(entry.handle, std::move(entry.slot)));
  }
}

}  // namespace rgpu::server
