// HostValues: what small storages of integers and bools are known to hold, because the client
// itself uploaded, filled, computed (ops/host_fold.h) or downloaded them. Reading such a tensor
// needs no answer from the server, so a mask that was just uploaded can be asked `.all()` without a
// wait.
//
// A storage is known as a whole, by its bytes. StorageName::knowable says, at no cost, that there
// may be an entry; an entry goes with the first write that is not repeated here, and with its
// storage.
//
// Threading: any thread; a mutex around the table. The bytes of an entry are changed only under the
//            IssueLock, in the order of the records that write them. Two threads that write and
//            read one tensor at once race, as on any device.
// Lifetime:  at most kEntriesMax entries and kBytesMax bytes; when full, all are forgotten.
// Errors:    none.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace rgpu::backend {

class HostValues {
 public:
  static constexpr size_t kStorageSizeBytesMax = size_t{128} << 10;
  static constexpr size_t kBytesMax = size_t{16} << 20;
  static constexpr size_t kEntriesMax = 4096;

  [[nodiscard]] static HostValues& get() noexcept;

  // Whether a storage made for a tensor of this type and size is knowable.
  [[nodiscard]] static bool takes(c10::ScalarType dtype, size_t size_bytes) {
    return size_bytes <= kStorageSizeBytesMax && c10::isIntegralType(dtype, /*includeBool=*/true);
  }

  // The storage's bytes in CPU memory, not to be changed; null when they are not known.
  [[nodiscard]] c10::Storage find(const c10::StorageImpl* storage);
  [[nodiscard]] bool contains(uint64_t key);

  // `host` has as many bytes as the storage and is nobody else's. For a storage that is not
  // knowable (any more): forgets.
  void put(c10::StorageImpl* storage, c10::Storage host);
  // A download under way: begin() before the record that fetches it is issued, finish() with what
  // came. If something wrote to the storage in between, finish() does nothing. 0: no use.
  [[nodiscard]] uint64_t begin(c10::StorageImpl* storage);
  void finish(c10::StorageImpl* storage, uint64_t ticket, c10::Storage host);

  // Who reads the one number in `storage` will look at these next, which it was computed from.
  using Origins = std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>;
  void note_origins(c10::StorageImpl* storage, Origins origins);
  // Those that are still there, and not known.
  [[nodiscard]] std::vector<c10::Storage> origins(const c10::StorageImpl* storage);

  void forget(c10::StorageImpl* storage);
  void erase(uint64_t key) noexcept;  // The storage is gone.

 private:
  struct Entry {
    c10::Storage host;    // Null: not known.
    uint64_t ticket = 0;  // Of a download under way.
    size_t size_bytes = 0;
    Origins origins;
  };
  HostValues() = default;
  void insert(uint64_t key, Entry entry);
  void erase_locked(uint64_t key) noexcept;

  std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;
  size_t size_bytes_ = 0;
  uint64_t next_ticket_ = 1;
};

}  // namespace rgpu::backend
