#include "server/torch/memory_ledger.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace rgpu::server {

void MemoryCount::add(uint64_t amount) noexcept {
  current += amount;
  added += amount;
  peak = std::max(peak, current);
}

void MemoryCount::remove(uint64_t amount) noexcept {
  current -= amount;
  removed += amount;
}

void MemoryLedger::replace(uint64_t old_bytes, uint64_t new_bytes) noexcept {
  if (old_bytes == new_bytes) return;
  const std::lock_guard lock(mutex_);
  // The new one first: while one replaces the other, both are there.
  figures_.bytes.add(new_bytes);
  figures_.bytes.remove(old_bytes);
  figures_.storages.add(new_bytes != 0 ? 1 : 0);
  figures_.storages.remove(old_bytes != 0 ? 1 : 0);
}

MemoryLedger::Reservation MemoryLedger::reserve_within_limit(uint64_t size_bytes) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t used_bytes = figures_.bytes.current + reserved_bytes_;
    if (used_bytes <= limit_bytes_ && size_bytes <= limit_bytes_ - used_bytes) {
      reserved_bytes_ += size_bytes;
      return {*this, size_bytes};
    }
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: tried to allocate ",
                   size_text(size_bytes));
}

void MemoryLedger::release(uint64_t size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= size_bytes;
}

std::string MemoryLedger::in_use_text() {
  std::string text = size_text(figures().bytes.current) +
                     " are in use by this session's tensors on rgpu:" + std::to_string(device_);
  if (limit_bytes_ != 0) {
    text += ", and the server's limit for a session (--memory-limit) is " + size_text(limit_bytes_);
  }
  return text;
}

void MemoryLedger::note_out_of_memory() noexcept {
  const std::lock_guard lock(mutex_);
  ++figures_.out_of_memory_count;
}

MemoryLedger::Figures MemoryLedger::figures() {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void MemoryLedger::reset_peak() noexcept {
  const std::lock_guard lock(mutex_);
  figures_.bytes.peak = figures_.bytes.current;
  figures_.storages.peak = figures_.storages.current;
}

void MemoryLedger::reset_totals() noexcept {
  const std::lock_guard lock(mutex_);
  for (MemoryCount* count : {&figures_.bytes, &figures_.storages}) {
    count->added = count->removed = 0;
  }
  figures_.out_of_memory_count = 0;
}

std::string size_text(uint64_t size_bytes) {
  constexpr std::array<const char*, 6> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(size_bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace rgpu::server
