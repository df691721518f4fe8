// HandleTable: from the client's handles to slots.
//
// Open addressing with linear probing: a lookup is one cache line in the common case, and handles
// that are numbered in a row spread by a multiplicative hash.
//
// Threading: the decode thread's alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/torch/slot.h"
#include "wire/batch.h"

namespace rgpu::server {

class HandleTable {
 public:
  HandleTable() : entries_(kCapacityMin) {}
  // Null when unknown. Valid until the next insert() or erase().
  [[nodiscard]] const SlotPtr* find(wire::Handle handle) const noexcept;
  // False when the handle is already in use.
  [[nodiscard]] bool insert(wire::Handle handle, SlotPtr slot);
  // Null when unknown.
  [[nodiscard]] SlotPtr erase(wire::Handle handle) noexcept;
  [[nodiscard]] size_t size() const noexcept { return size_; }

 private:
  static constexpr size_t kCapacityMin = 1024;  // A power of two.
  struct Entry {
    wire::Handle handle = 0;  // 0: empty.
    SlotPtr slot;
  };
  [[nodiscard]] size_t home(wire::Handle handle) const noexcept {
    return static_cast<size_t>((handle * 0x9E3779B97F4A7C15u) >> 32) & (entries_.size() - 1);
  }
  void grow();

  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace rgpu::server
