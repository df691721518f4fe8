// RecordRing: the records of one stream that wait to be sent, in a fixed piece of memory.
//
// Threading: one thread at a time appends (the session's issue lock sees to that), one thread
//            drains (its I/O thread). The two share nothing but the two positions.
// Lifetime:  append copies; a record that front() returned is valid until release().
// Errors:    none here. try_append() returns false when there is no room at this moment.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "wire/batch.h"

namespace rgpu {

// One record with the place in the session's order that it was issued at.
struct RingRecord {
  uint64_t sequence = 0;
  uint32_t number = 0;
  uint32_t location = 0;
  std::span<const wire::Handle> handles;
  std::span<const std::byte> immediates;
};

class RecordRing {
 public:
  explicit RecordRing(uint32_t size_bytes);  // A power of two, 64 at least.
  RecordRing(const RecordRing&) = delete;
  RecordRing& operator=(const RecordRing&) = delete;

  // What a record takes in the ring.
  [[nodiscard]] static uint64_t record_size_bytes(const RingRecord& record) noexcept;
  // Half the ring: a record lies in one piece, so a larger one might never find its place.
  [[nodiscard]] uint64_t record_size_bytes_max() const noexcept { return size_bytes_ / 2; }

  // Appending thread. Some 10 ns and a copy; record_size_bytes() ≤ record_size_bytes_max().
  [[nodiscard]] bool try_append(const RingRecord& record) noexcept;

  // Any thread. How many records were appended since the beginning.
  [[nodiscard]] uint64_t appended() const noexcept {
    return appended_.load(std::memory_order_acquire);
  }

  // Draining thread. The oldest record that was not popped; false: there is none.
  [[nodiscard]] bool front(RingRecord& record) noexcept;
  void pop() noexcept;      // Only after front() found one.
  void release() noexcept;  // Gives the room of all popped records back to the appending thread.

 private:
  struct Header;

  std::byte* at(uint64_t position) const noexcept;

  const uint64_t size_bytes_;
  std::unique_ptr<uint64_t[]> storage_;  // Words, for the alignment of headers and handles.

  // Positions count bytes since the beginning and only grow; modulo the size they are offsets.
  alignas(64) std::atomic<uint64_t> tail_{0};  // Written by the appending thread,
  std::atomic<uint64_t> appended_{0};          // By it as well.
  uint64_t head_seen_ = 0;                     // which looks at head_ only when this is too old.
  alignas(64) std::atomic<uint64_t> head_{0};  // Written by the draining thread, in release().
  uint64_t read_ = 0;                          // The draining thread's own position, ≥ head_.
};

}  // namespace rgpu
