#include "server/input_buffer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "wire/status.h"

namespace rgpu::server {
namespace {

constexpr size_t kBlocksKeptMax = 32;
constexpr size_t kRoomSizeBytesMin = 64u << 10;  // A smaller rest of a block is not worth a read.
constexpr size_t kAlignment = alignof(uint64_t);

}  // namespace

Body Body::copy_of(std::span<const std::byte> bytes) {
  const std::shared_ptr<uint64_t[]> words =
      std::make_shared_for_overwrite<uint64_t[]>((bytes.size() + kAlignment - 1) / kAlignment);
  auto* const start = reinterpret_cast<std::byte*>(words.get());
  if (!bytes.empty()) std::memcpy(start, bytes.data(), bytes.size());
  return {words, {start, bytes.size()}};
}

struct BlockPool::Kept {
  std::mutex mutex;
  std::vector<std::unique_ptr<std::byte[]>> blocks;
};

BlockPool::BlockPool() : kept_(std::make_shared<Kept>()) {}

std::shared_ptr<std::byte[]> BlockPool::take(size_t size_bytes) {
  if (size_bytes > InputBuffer::kBlockSizeBytes) {
    // From operator new, whose blocks are aligned.
    return std::shared_ptr<std::byte[]>(new std::byte[size_bytes]);
  }
  std::unique_ptr<std::byte[]> block;
  {
    const std::lock_guard lock(kept_->mutex);
    if (!kept_->blocks.empty()) {
      block = std::move(kept_->blocks.back());
      kept_->blocks.pop_back();
    }
  }
  if (block == nullptr) block.reset(new std::byte[InputBuffer::kBlockSizeBytes]);
  return {block.release(), [kept = kept_](std::byte* start) {
            std::unique_ptr<std::byte[]> used(start);
            const std::lock_guard lock(kept->mutex);
            if (kept->blocks.size() < kBlocksKeptMax) kept->blocks.push_back(std::move(used));
          }};
}

std::span<std::byte> InputBuffer::room(size_t size_bytes) {
  const size_t held = end_ - begin_;
  const size_t wanted = std::max(size_bytes, held + kRoomSizeBytesMin);
  if (held == 0) begin_ = end_ = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  if (begin_ + wanted > capacity_bytes_) {
    const size_t capacity_bytes = std::max(wanted, kBlockSizeBytes);
    const std::shared_ptr<std::byte[]> block = pool_.take(capacity_bytes);
    if (held != 0) std::memcpy(block.get(), block_.get() + begin_, held);
    block_ = block;
    capacity_bytes_ = capacity_bytes;
    begin_ = 0;
    end_ = held;
  }
  return {block_.get() + end_, capacity_bytes_ - end_};
}

size_t InputBuffer::take(std::span<std::byte> target) noexcept {
  const size_t taken = std::min(target.size(), size_bytes());
  if (taken != 0) std::memcpy(target.data(), block_.get() + begin_, taken);
  begin_ += taken;
  return taken;
}

Body InputBuffer::take_body(size_t size_bytes) {
  RGPU_CHECK(size_bytes <= this->size_bytes());
  const std::span<std::byte> bytes(block_.get() + begin_, size_bytes);
  begin_ += size_bytes;
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) return Body::copy_of(bytes);
  return {block_, bytes};
}

}  // namespace rgpu::server
