#include "torch_backend/device/host_values.h"

#include <utility>

#include "torch_backend/device/storage.h"

namespace rgpu::backend {

HostValues& HostValues::get() noexcept {
  static HostValues* values = new HostValues();  // Leaked: storages outlive static destructors.
  return *values;
}

c10::Storage HostValues::find(const c10::StorageImpl* storage) {
  const StorageName name = name_of(storage);
  if (!name.knowable) return {};
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(name));
  return found == entries_.end() ? c10::Storage() : found->second.host;
}

bool HostValues::contains(uint64_t key) {
  const std::lock_guard lock(mutex_);
  return entries_.contains(key);
}

void HostValues::put(c10::StorageImpl* storage, c10::Storage host) {
  if (!is_knowable(storage) || host.nbytes() > kStorageSizeBytesMax) {
    forget(storage);
    return;
  }
  const size_t size_bytes = host.nbytes();
  const std::lock_guard lock(mutex_);
  insert(key_of(name_of(storage)), {std::move(host), 0, size_bytes, {}});
}

uint64_t HostValues::begin(c10::StorageImpl* storage) {
  if (!is_knowable(storage)) return 0;
  const std::lock_guard lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  insert(key_of(name_of(storage)), {{}, ticket, 0, {}});
  return ticket;
}

void HostValues::finish(c10::StorageImpl* storage, uint64_t ticket, c10::Storage host) {
  const uint64_t key = key_of(name_of(storage));
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (ticket == 0 || found == entries_.end() || found->second.ticket != ticket) return;
  const size_t size_bytes = host.nbytes();
  insert(key, {std::move(host), 0, size_bytes, {}});
}

void HostValues::note_origins(c10::StorageImpl* storage, Origins origins) {
  if (!is_knowable(storage)) return;
  const std::lock_guard lock(mutex_);
  insert(key_of(name_of(storage)), {{}, 0, 0, std::move(origins)});
}

std::vector<c10::Storage> HostValues::origins(const c10::StorageImpl* storage) {
  const StorageName name = name_of(storage);
  std::vector<c10::Storage> alive;
  if (!name.knowable) return alive;
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key_of(name));
  if (found == entries_.end()) return alive;
  for (const auto& origin : found->second.origins) {
    c10::intrusive_ptr<c10::StorageImpl> held = origin.lock();
    if (held) alive.emplace_back(std::move(held));
  }
  return alive;
}

void HostValues::forget(c10::StorageImpl* storage) {
  const StorageName name = name_of(storage);
  if (name.knowable) erase(key_of(name));
}

void HostValues::erase(uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  erase_locked(key);
}

void HostValues::erase_locked(uint64_t key) noexcept {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  size_bytes_ -= found->second.size_bytes;
  entries_.erase(found);
}

void HostValues::insert(uint64_t key, Entry entry) {
  erase_locked(key);
  if (entries_.size() >= kEntriesMax || size_bytes_ + entry.size_bytes > kBytesMax) {
    entries_.clear();
    size_bytes_ = 0;
  }
  size_bytes_ += entry.size_bytes;
  entries_.emplace(key, std::move(entry));
}

}  // namespace rgpu::backend
