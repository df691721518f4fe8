#include "torch_backend/device/storage.h"

#include <sys/mman.h>

#include <cstring>

#include "torch_backend/device/allocator.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/host_values.h"
#include "torch_backend/device/initial_values.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
namespace {

// Context bits: 0 fresh, 1 knowable, 2…49 handle, 50…63 generation.
constexpr int kHandleShift = 2;
constexpr int kGenerationShift = 50;
constexpr uint64_t kHandleMask = (uint64_t{1} << 48) - 1;
constexpr uint32_t kGenerationMask = (1U << 14) - 1;

constexpr uint64_t kReservedSizeBytes = uint64_t{1} << 43;  // Address space only.
constexpr int kAddressShift = 6;                            // 64 bytes apart.

char* reserved_range() {  // Throws once, from the first allocation.
  static char* const base = [] {
    void* range = mmap(nullptr, kReservedSizeBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(range != MAP_FAILED, "rgpu could not reserve ", kReservedSizeBytes >> 40,
                " TiB of address space (", std::strerror(errno),
                "): raise the limit of virtual memory (ulimit -v unlimited)");
    return static_cast<char*>(range);
  }();
  return base;
}

void* pack(const StorageName& name) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the context is a number in a pointer's place.
  return reinterpret_cast<void*>(key_of(name) | (name.knowable ? 2U : 0U) | (name.fresh ? 1U : 0U));
}

StorageName unpack(const void* context) noexcept {
  const auto bits = reinterpret_cast<uint64_t>(context);
  return {(bits >> kHandleShift) & kHandleMask, static_cast<uint32_t>(bits >> kGenerationShift),
          (bits & 1U) != 0, (bits & 2U) != 0};
}

void release_storage(void* context) {
  const StorageName name = unpack(context);
  if (name.knowable) [[unlikely]]
    HostValues::get().erase(key_of(name));
  if (name.fresh) {
    InitialValues::get().erase(key_of(name));
  } else {
    Client::get().release(name.generation, name.handle);
  }
}

}  // namespace

c10::DataPtr make_data_ptr(const StorageName& name, c10::DeviceIndex device) {
  const uint64_t offset = (name.handle << kAddressShift) & (kReservedSizeBytes - 1);
  return {reserved_range() + offset, pack(name), &release_storage,
          c10::Device(kDeviceType, device)};
}

StorageName name_of(const c10::StorageImpl* storage) noexcept {
  if (storage->device_type() != kDeviceType) return {};
  const StorageName name = unpack(storage->data_ptr().get_context());
  if (name.handle != 0) [[likely]]
    return name;
  // PyTorch's from_blob on a device pointer (saving and loading storages): the address names it.
  const auto* address = static_cast<const char*>(storage->data_ptr().get());
  const char* base = reserved_range();
  if (address <= base || address >= base + kReservedSizeBytes) return {};
  StorageName named{static_cast<uint64_t>(address - base) >> kAddressShift,
                    Client::get().generation() & kGenerationMask, false, false};
  named.knowable = HostValues::get().contains(key_of(named));
  return named;
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(wire::Handle handle, uint32_t generation,
                                                  bool fresh, size_t size_bytes,
                                                  c10::DeviceIndex device, bool knowable) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), size_bytes,
      make_data_ptr({handle, generation, fresh, knowable}, device), device_allocator(),
      /*resizable=*/true);
}

c10::intrusive_ptr<c10::StorageImpl> make_fresh_storage(size_t size_bytes, c10::DeviceIndex device,
                                                        bool knowable) {
  Client& client = Client::get();
  const wire::Handle handle = client.session().new_handles(1);
  return make_storage(handle, client.generation(), true, size_bytes, device, knowable);
}

uint64_t key_of(const StorageName& name) noexcept {
  return (uint64_t{name.generation & kGenerationMask} << kGenerationShift) |
         (name.handle << kHandleShift);
}

void mark_announced(c10::StorageImpl* storage) noexcept {
  c10::DataPtr& pointer = storage->_mutable_data_ptr_no_checks();
  StorageName name = unpack(pointer.get_context());
  name.fresh = false;
  c10::DataPtr known(pointer.get(), pack(name), &release_storage, pointer.device());
  (void)pointer.release_context();
  pointer = std::move(known);
}

bool is_knowable(const c10::StorageImpl* storage) noexcept {
  const StorageName name = unpack(storage->data_ptr().get_context());
  return name.handle != 0 && name.knowable;
}

StorageName checked_name(c10::StorageImpl* storage) {
  StorageName name = name_of(storage);
  if (name.handle == 0 && storage->nbytes() == 0 && storage->device_type() == kDeviceType)
      [[unlikely]] {
    storage->set_data_ptr_noswap(device_allocator()->allocate(0));
    name = name_of(storage);
  }
  TORCH_CHECK(name.handle != 0, "rgpu: this tensor has no storage on the server");
  TORCH_CHECK(name.generation == (Client::get().generation() & kGenerationMask),
              "rgpu: this tensor belonged to an earlier session, which is lost; make it again");
  return name;
}

wire::Handle checked_handle(c10::StorageImpl* storage) { return checked_name(storage).handle; }

wire::Handle announce(c10::StorageImpl* storage) {
  const StorageName name = checked_name(storage);
  if (name.fresh) {
    const uint64_t size_bytes = storage->nbytes();
    if (const auto value = InitialValues::get().take(storage)) [[unlikely]] {
      raise_if_error(Client::get().session().upload(
          current_stream(storage->device().index()), name.handle, size_bytes, /*offset_bytes=*/0,
          Payload{std::span(*value).first(size_bytes), nullptr}, Client::hooks().observer()));
      mark_announced(storage);
      return name.handle;
    }
    Client::get().append(wire::Command::kAllocate, current_stream(storage->device().index()),
                         {&name.handle, 1}, std::as_bytes(std::span(&size_bytes, 1)));
    mark_announced(storage);
  }
  return name.handle;
}

void resize_storage(c10::StorageImpl* storage, size_t size_bytes) {
  const wire::Handle handle = checked_handle(storage);
  HostValues::get().forget(storage);
  if (InitialValues::get().holds(storage)) (void)announce(storage);
  if (!name_of(storage).fresh) {
    const uint64_t size = size_bytes;
    Client::get().append(wire::Command::kResize, current_stream(storage->device().index()),
                         {&handle, 1}, std::as_bytes(std::span(&size, 1)));
  }
  storage->set_nbytes(size_bytes);
}

}  // namespace rgpu::backend
