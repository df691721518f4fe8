#include "server/cuda/real/pinned_pool.h"

#include <bit>

#include "server/cuda/driver.h"

namespace rgpu::server::cuda {
namespace {

constexpr uint64_t kSmallestBytes = 64u << 10;
constexpr uint64_t kLargeBytes = 16u << 20;

// Few sizes, so that blocks fit again.
uint64_t rounded(uint64_t size_bytes) {
  if (size_bytes <= kSmallestBytes) return kSmallestBytes;
  if (size_bytes <= kLargeBytes) return std::bit_ceil(size_bytes);
  return (size_bytes + kLargeBytes - 1) / kLargeBytes * kLargeBytes;
}

}  // namespace

std::shared_ptr<PinnedBlock> PinnedPool::lend(const PinnedBlock& block) {
  return {new PinnedBlock(block),
          [pool = shared_from_this()](PinnedBlock* returned) { pool->give_back(returned); }};
}

std::shared_ptr<PinnedBlock> PinnedPool::take(uint64_t size_bytes, bool may_wait) {
  if (size_bytes > kSizeBytesLimit) return nullptr;
  const uint64_t size = rounded(size_bytes);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto found = idle_.lower_bound(size);
        found != idle_.end() && found->first <= size * 2) {
      const PinnedBlock block{found->second, found->first};
      idle_bytes_ -= block.size_bytes;
      idle_.erase(found);
      return lend(block);
    }
    // Freeing may wait for the device.
    if (may_wait && total_bytes_ + size > kSizeBytesMax) free_idle();
    if (!may_wait || total_bytes_ == 0 || total_bytes_ + size <= kSizeBytesMax) break;
    returned_.wait(lock);
  }
  if (size > kSizeBytesLimit - total_bytes_) return nullptr;
  void* memory = nullptr;
  if (driver_.allocate_host(&memory, size, kCuHostAllocPortable) != kSuccess) {
    free_idle();
    if (driver_.allocate_host(&memory, size, kCuHostAllocPortable) != kSuccess) return nullptr;
  }
  total_bytes_ += size;
  return lend({static_cast<std::byte*>(memory), size});
}

void PinnedPool::give_back(PinnedBlock* block) {
  {
    const std::lock_guard lock(mutex_);
    idle_.emplace(block->size_bytes, block->bytes);
    idle_bytes_ += block->size_bytes;
  }
  returned_.notify_one();
  delete block;
}

void PinnedPool::free_idle() {
  for (const auto& [size_bytes, bytes] : idle_) (void)driver_.free_host(bytes);
  total_bytes_ -= idle_bytes_;
  idle_bytes_ = 0;
  idle_.clear();
}

bool PinnedPool::close() {
  const std::lock_guard lock(mutex_);
  free_idle();
  return total_bytes_ == 0;
}

}  // namespace rgpu::server::cuda
