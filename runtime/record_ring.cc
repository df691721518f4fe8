#include "runtime/record_ring.h"

#include <bit>
#include <cstring>
#include <limits>

namespace rgpu {

// Followed by the handles, then by the immediates, padded to a whole word.
struct RecordRing::Header {
  uint64_t sequence;
  uint32_t number;
  uint32_t location;
  uint32_t handle_count;
  uint32_t immediates_size_bytes;
};

namespace {

// In the place of a sequence: the rest of the ring is unused, the next record is at its start.
constexpr uint64_t kSkipToStart = std::numeric_limits<uint64_t>::max();

constexpr uint64_t round_up_to_word(uint64_t size_bytes) { return (size_bytes + 7) & ~uint64_t{7}; }

}  // namespace

RecordRing::RecordRing(uint32_t size_bytes)
    : size_bytes_(size_bytes), storage_(new uint64_t[size_bytes / sizeof(uint64_t)]) {
  RGPU_CHECK(std::has_single_bit(size_bytes) && size_bytes >= 64);
}

std::byte* RecordRing::at(uint64_t position) const noexcept {
  return reinterpret_cast<std::byte*>(storage_.get()) + (position & (size_bytes_ - 1));
}

uint64_t RecordRing::record_size_bytes(const RingRecord& record) noexcept {
  return sizeof(Header) + record.handles.size_bytes() +
         round_up_to_word(record.immediates.size_bytes());
}

bool RecordRing::try_append(const RingRecord& record) noexcept {
  const uint64_t size = record_size_bytes(record);
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  const uint64_t to_end = size_bytes_ - (tail & (size_bytes_ - 1));
  const uint64_t skipped = size > to_end ? to_end : 0;
  if (tail + skipped + size - head_seen_ > size_bytes_) {
    head_seen_ = head_.load(std::memory_order_acquire);
    if (tail + skipped + size - head_seen_ > size_bytes_) return false;
  }
  if (skipped != 0) {
    std::memcpy(at(tail), &kSkipToStart, sizeof(kSkipToStart));
    tail += skipped;
  }
  const Header header{record.sequence, record.number, record.location,
                      static_cast<uint32_t>(record.handles.size()),
                      static_cast<uint32_t>(record.immediates.size())};
  std::byte* to = at(tail);
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  if (!record.handles.empty()) {
    std::memcpy(to, record.handles.data(), record.handles.size_bytes());
    to += record.handles.size_bytes();
  }
  if (!record.immediates.empty()) {
    std::memcpy(to, record.immediates.data(), record.immediates.size_bytes());
  }
  tail_.store(tail + size, std::memory_order_release);
  appended_.store(appended_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return true;
}

bool RecordRing::front(RingRecord& record) noexcept {
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  if (read_ == tail) return false;
  uint64_t sequence = 0;
  std::memcpy(&sequence, at(read_), sizeof(sequence));
  if (sequence == kSkipToStart) read_ += size_bytes_ - (read_ & (size_bytes_ - 1));
  const std::byte* from = at(read_);
  const auto* header = reinterpret_cast<const Header*>(from);
  from += sizeof(Header);
  record.sequence = header->sequence;
  record.number = header->number;
  record.location = header->location;
  record.handles = {reinterpret_cast<const wire::Handle*>(from), header->handle_count};
  record.immediates = {from + record.handles.size_bytes(), header->immediates_size_bytes};
  return true;
}

void RecordRing::pop() noexcept {
  const auto* header = reinterpret_cast<const Header*>(at(read_));
  read_ += sizeof(Header) + header->handle_count * sizeof(wire::Handle) +
           round_up_to_word(header->immediates_size_bytes);
}

void RecordRing::release() noexcept { head_.store(read_, std::memory_order_release); }

}  // namespace rgpu
