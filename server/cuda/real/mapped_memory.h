// MappedMemory: a device's memory at the addresses that the client chose.
//
// The device's part of the agreed range is reserved; allocating maps memory to the pages of it that
// have none. Small allocations share pages, so pieces of memory count their users. A piece without
// any stays until release(): work that was queued before may still use it, and the next allocation
// there takes it over.
//
// Threading: any thread, with the device's context current.
// Lifetime:  the destructor unmaps everything; the device is idle then.
// Errors:    CUresult with a message.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "server/cuda/driver.h"
#include "server/cuda/real/driver_symbols.h"

namespace rgpu::server::cuda {

class MappedMemory {
 public:
  struct Place {
    int device = 0;
    uint64_t base = 0;  // Of the reserved addresses.
    uint64_t size_bytes = 0;
    uint64_t granularity_bytes = 0;
    std::vector<CuAccess> access = {};  // Devices that may use it.
  };
  // A piece that lost its last user, as it was then.
  struct Unused {
    uint64_t begin = 0;
    uint64_t serial = 0;
  };

  MappedMemory(const DriverSymbols& driver, Place place)
      : driver_(driver), place_(std::move(place)) {}
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  [[nodiscard]] Outcome allocate(uint64_t address, uint64_t size_bytes);
  // Whether pieces without users reach beyond that allocation's pages: better to release them
  // first.
  [[nodiscard]] bool is_in_the_way(uint64_t address, uint64_t size_bytes) const;
  [[nodiscard]] Outcome free(uint64_t address, std::vector<Unused>& unused);
  void free_all(std::vector<Unused>& unused);
  // Unmaps those pieces that nobody has used since.
  void release(const std::vector<Unused>& unused);
  [[nodiscard]] uint64_t unused_bytes() const;

 private:
  struct Piece {
    uint64_t end = 0;
    CuMemory memory = 0;
    uint32_t users = 0;
    uint64_t serial = 0;  // Changes whenever it loses its last user.
  };
  using Pieces = std::map<uint64_t, Piece>;  // By begin.

  [[nodiscard]] uint64_t down(uint64_t address) const;
  [[nodiscard]] uint64_t up(uint64_t address) const;
  // Under mutex_, as those that follow. The first piece that ends behind the address.
  [[nodiscard]] Pieces::const_iterator first_behind(uint64_t address) const;
  [[nodiscard]] Outcome add_piece(uint64_t begin, uint64_t end);
  void remove_piece(Pieces::iterator piece);
  void drop_users(uint64_t begin, uint64_t end, std::vector<Unused>& unused);

  const DriverSymbols& driver_;
  const Place place_;
  mutable std::mutex mutex_;                  // Guards what follows.
  Pieces pieces_;                             // Disjoint.
  std::map<uint64_t, uint64_t> allocations_;  // Address to size.
  uint64_t serials_ = 0;
  uint64_t unused_bytes_ = 0;
};

}  // namespace rgpu::server::cuda
