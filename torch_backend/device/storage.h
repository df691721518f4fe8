// Storage: how a c10::Storage on device rgpu names the server's storage.
//
// The DataPtr's context holds everything (generation, handle, whether the server knows it), so a
// storage costs no allocation beyond PyTorch's own. Its data pointer lies in an address range that
// is reserved and unreadable: a stray host access faults at once instead of reading garbage.
//
// Threading: as any c10::Storage; making and releasing one is safe from every thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "wire/batch.h"

namespace rgpu::backend {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

struct StorageName {
  wire::Handle handle = 0;  // 0: not one of ours.
  uint32_t generation = 0;  // Of the session it belongs to.
  bool fresh = false;       // The server has not heard of it yet.
  bool knowable = false;    // Made for few integers: HostValues may know what it holds.
};

[[nodiscard]] StorageName name_of(const c10::StorageImpl* storage) noexcept;
// Of a strided tensor.
[[nodiscard]] inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// A new storage under `handle`; `fresh` ones are announced by announce() on their first use.
[[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> make_storage(wire::Handle handle,
                                                                uint32_t generation, bool fresh,
                                                                size_t size_bytes,
                                                                c10::DeviceIndex device,
                                                                bool knowable);
// A fresh storage of the current session (connects).
[[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> make_fresh_storage(size_t size_bytes,
                                                                      c10::DeviceIndex device,
                                                                      bool knowable);
// From now on the server knows it.
void mark_announced(c10::StorageImpl* storage) noexcept;
// Not so for a storage that borrows another one's name (from_blob): who writes through that one
// would not be seen here.
[[nodiscard]] bool is_knowable(const c10::StorageImpl* storage) noexcept;
// Handle and generation in one word: what HostValues calls the storage.
[[nodiscard]] uint64_t key_of(const StorageName& name) noexcept;

// The handle for use in a record: checks that it belongs to the current session, and appends
// Command::kAllocate first when the storage is fresh. The caller holds an IssueLock or
// is about to append under no template.
[[nodiscard]] wire::Handle announce(c10::StorageImpl* storage);
// The same without announcing, for a record that defines the storage itself.
// An empty storage that PyTorch made without asking the allocator gets its handle here.
[[nodiscard]] wire::Handle checked_handle(c10::StorageImpl* storage);
[[nodiscard]] StorageName checked_name(c10::StorageImpl* storage);

// What a storage of ours consists of.
[[nodiscard]] c10::DataPtr make_data_ptr(const StorageName& name, c10::DeviceIndex device);
// New size, common prefix kept (Command::kResize).
void resize_storage(c10::StorageImpl* storage, size_t size_bytes);

}  // namespace rgpu::backend
