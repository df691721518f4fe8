// AddressSpace: which device addresses are in use. The client alone decides that, so that
// allocating waits for nothing.
//
// Threading: any thread.
// Errors:    allocate() returns 0 when nothing so large is free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace rgpu::cuda {

struct Allocation {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t serial = 0;  // Its number, for CU_POINTER_ATTRIBUTE_BUFFER_ID.
  uint64_t owner = 0;   // The id of the context that it ends with; 0: a primary one, or a pool.
  bool mapped = false;  // By map().
};

class AddressSpace {
 public:
  // `memory_size_bytes`: what may be in use at once.
  AddressSpace(uint64_t base, uint64_t size_bytes, uint64_t memory_size_bytes);

  // At a multiple of 512; of 2 MiB for 1 MiB and more.
  [[nodiscard]] uint64_t allocate(uint64_t size_bytes, uint64_t owner = 0);
  // False: no allocation begins there, or it was mapped.
  [[nodiscard]] bool free(uint64_t address);

  // ---- Addresses and memory apart (cuMemAddressReserve, cuMemCreate, cuMemMap)
  // Addresses without memory, at `wanted` where those are free; 0: no room. `alignment`: a power of
  // two.
  [[nodiscard]] uint64_t reserve(uint64_t size_bytes, uint64_t alignment, uint64_t wanted);
  // False: it is not one reservation, or something is mapped in it.
  [[nodiscard]] bool release(uint64_t address, uint64_t size_bytes);
  // Memory that is in use without an address; false: there is not so much.
  [[nodiscard]] bool take(uint64_t size_bytes);
  void give_back(uint64_t size_bytes);
  // From here on it is an allocation, whose memory was taken before. False: it is not within one
  // reservation, or something is mapped there.
  [[nodiscard]] bool map(uint64_t address, uint64_t size_bytes);
  [[nodiscard]] bool unmap(uint64_t address);  // False: nothing that was mapped begins there.

  [[nodiscard]] std::vector<uint64_t> owned_by(uint64_t owner) const;
  // What was allocated outside of it: a module's variable. It is found, and never freed.
  void add_foreign(uint64_t address, uint64_t size_bytes);
  void clear();  // A device's reset.
  // The allocation that holds the address; size 0: none.
  [[nodiscard]] Allocation find(uint64_t address) const;
  // Whether all of it lies in one allocation, or in mapped ones that follow one another.
  [[nodiscard]] bool holds(uint64_t address, uint64_t size_bytes) const;
  [[nodiscard]] uint64_t used_bytes() const;
  [[nodiscard]] uint64_t begin() const noexcept { return base_; }
  [[nodiscard]] uint64_t end() const noexcept { return end_; }

 private:
  // Under mutex_, as those that follow.
  void add_free(uint64_t begin, uint64_t end);
  void remove_free(std::map<uint64_t, uint64_t>::iterator block);
  void merge_free(uint64_t begin, uint64_t end);  // As add_free(), with what is free beside it.
  // Out of a free block that holds it.
  void cut_free(uint64_t block_begin, uint64_t begin, uint64_t end);
  [[nodiscard]] Allocation find_locked(uint64_t address) const;

  const uint64_t base_;
  const uint64_t end_;
  const uint64_t memory_size_bytes_;
  mutable std::mutex mutex_;                         // Guards what follows.
  std::map<uint64_t, Allocation> used_;              // By address.
  std::map<uint64_t, uint64_t> free_;                // Begin to end.
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // Size and begin of the same.
  std::map<uint64_t, uint64_t> reserved_;            // Begin to end.
  uint64_t used_bytes_ = 0;
  uint64_t serials_ = 0;
};

}  // namespace rgpu::cuda
