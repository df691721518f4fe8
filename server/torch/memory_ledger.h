// MemoryLedger: the bytes that the handles of one device stand for, and how many they may become.
//
// It sees the storages of handles, not what an op takes for itself while it runs nor what a kept
// graph saved: docs/limits.md.
//
// Threading: any thread; one short lock.
// Errors:    reserve() throws c10::OutOfMemoryError when the limit would be passed.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace rgpu::server {

struct MemoryCount {
  uint64_t current = 0;
  uint64_t peak = 0;
  uint64_t added = 0;  // Since the session began, or reset_totals().
  uint64_t removed = 0;

  void add(uint64_t amount) noexcept;
  void remove(uint64_t amount) noexcept;
};

class MemoryLedger {
 public:
  // `limit_bytes` 0: none.
  MemoryLedger(uint32_t device, uint64_t limit_bytes)
      : device_(device), limit_bytes_(limit_bytes) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // A handle's storage of `old_bytes` became one of `new_bytes`; 0: none.
  void replace(uint64_t old_bytes, uint64_t new_bytes) noexcept;

  // Room for what is about to be allocated. It counts until it is let go of, right before the new
  // storage is bound to its handle; so streams that allocate at once cannot pass the limit
  // together.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(MemoryLedger& ledger, uint64_t size_bytes)
        : ledger_(&ledger), size_bytes_(size_bytes) {}
    Reservation(Reservation&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)), size_bytes_(other.size_bytes_) {}
    Reservation& operator=(Reservation&& other) noexcept {
      release();
      ledger_ = std::exchange(other.ledger_, nullptr);
      size_bytes_ = other.size_bytes_;
      return *this;
    }
    ~Reservation() { release(); }
    void release() noexcept {
      if (ledger_ != nullptr) std::exchange(ledger_, nullptr)->release(size_bytes_);
    }

   private:
    MemoryLedger* ledger_ = nullptr;
    uint64_t size_bytes_ = 0;
  };
  // Costs a load where there is no limit.
  [[nodiscard]] Reservation reserve(uint64_t size_bytes) {
    return limit_bytes_ == 0 ? Reservation() : reserve_within_limit(size_bytes);
  }

  [[nodiscard]] uint64_t limit_bytes() const noexcept { return limit_bytes_; }
  // "12.00 MiB are in use on rgpu:0, the session's limit is 1.00 GiB", for messages.
  [[nodiscard]] std::string in_use_text();
  void note_out_of_memory() noexcept;

  struct Figures {
    MemoryCount bytes;
    MemoryCount storages;
    uint64_t out_of_memory_count = 0;
  };
  [[nodiscard]] Figures figures();
  void reset_peak() noexcept;
  void reset_totals() noexcept;

 private:
  [[nodiscard]] Reservation reserve_within_limit(uint64_t size_bytes);
  void release(uint64_t size_bytes) noexcept;

  const uint32_t device_;
  const uint64_t limit_bytes_;
  std::mutex mutex_;  // Guards what follows.
  Figures figures_;
  uint64_t reserved_bytes_ = 0;
};

// "1.50 GiB"
[[nodiscard]] std::string size_text(uint64_t size_bytes);

}  // namespace rgpu::server
