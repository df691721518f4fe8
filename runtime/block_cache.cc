#include "runtime/block_cache.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace rgpu {
namespace {

constexpr size_t kPageSizeBytes = 4096;
constexpr size_t kHeaderSizeBytes = 64;
constexpr size_t kHugePageSizeBytes = size_t{2} << 20;

}  // namespace

// Lies in front of the bytes that are handed out.
struct BlockCache::Block {
  BlockCache* cache = nullptr;
  size_t mapped_size_bytes = 0;
  // Of kept blocks.
  Block* newer = nullptr;
  Block* older = nullptr;

  void* bytes() noexcept { return reinterpret_cast<std::byte*>(this) + kHeaderSizeBytes; }
  static Block* of(void* bytes) noexcept {
    return reinterpret_cast<Block*>(static_cast<std::byte*>(bytes) - kHeaderSizeBytes);
  }
};

// Eight sizes between two powers of two, so that an eighth is wasted at most and sizes that nearly
// repeat share their blocks.
size_t BlockCache::mapped_size_bytes(size_t size_bytes) noexcept {
  static_assert(sizeof(Block) <= kHeaderSizeBytes);
  const size_t step = std::max(std::bit_floor(size_bytes) / 8, kPageSizeBytes);
  return (size_bytes + step - 1) / step * step + kPageSizeBytes;  // The header's page.
}

void* BlockCache::take(size_t size_bytes) noexcept {
  if (size_bytes > PTRDIFF_MAX / 2) return nullptr;
  const size_t mapped = mapped_size_bytes(size_bytes);
  Block* block = take_kept(mapped);
  if (block == nullptr) block = map(mapped);
  if (block == nullptr) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    taken_.insert(block->bytes());
  } catch (const std::bad_alloc&) {
    block->older = nullptr;
    unmap(block);
    return nullptr;
  }
  return block->bytes();
}

BlockCache::Block* BlockCache::take_kept(size_t mapped_size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  for (Block* block = newest_; block != nullptr; block = block->older) {
    if (block->mapped_size_bytes != mapped_size_bytes) continue;
    unlink(*block);
    return block;
  }
  return nullptr;
}

BlockCache::Block* BlockCache::map(size_t mapped_size_bytes) noexcept {
  const auto fresh = [&] {
    return mmap(nullptr, mapped_size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
  };
  void* memory = fresh();
  if (memory == MAP_FAILED) {
    trim();
    memory = fresh();
  }
  if (memory == MAP_FAILED) return nullptr;
#ifdef __linux__
  // A hint: where it is refused, pages are small.
  if (huge_pages_ && mapped_size_bytes >= 2 * kHugePageSizeBytes) {
    (void)madvise(memory, mapped_size_bytes, MADV_HUGEPAGE);
  }
#endif
  return new (memory) Block{this, mapped_size_bytes, nullptr, nullptr};
}

void BlockCache::give(void* bytes) noexcept {
  if (bytes == nullptr) return;
  Block& block = *Block::of(bytes);
  BlockCache& cache = *block.cache;
  Block* unwanted = nullptr;
  {
    const std::lock_guard lock(cache.mutex_);
    cache.taken_.erase(bytes);
    block.newer = nullptr;
    block.older = cache.newest_;
    (cache.newest_ != nullptr ? cache.newest_->newer : cache.oldest_) = &block;
    cache.newest_ = &block;
    cache.kept_size_bytes_ += block.mapped_size_bytes;
    unwanted = cache.take_oldest_over(cache.kept_size_bytes_max_);
  }
  unmap(unwanted);
}

bool BlockCache::is_taken(const void* pointer) const noexcept {
  if (reinterpret_cast<uintptr_t>(pointer) % kPageSizeBytes != kHeaderSizeBytes) return false;
  const std::lock_guard lock(mutex_);
  return taken_.contains(pointer);
}

size_t BlockCache::kept_size_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return kept_size_bytes_;
}

void BlockCache::trim() noexcept {
  Block* all = nullptr;
  {
    const std::lock_guard lock(mutex_);
    all = take_oldest_over(0);
  }
  unmap(all);
}

void BlockCache::unlink(Block& block) noexcept {
  (block.newer != nullptr ? block.newer->older : newest_) = block.older;
  (block.older != nullptr ? block.older->newer : oldest_) = block.newer;
  kept_size_bytes_ -= block.mapped_size_bytes;
}

BlockCache::Block* BlockCache::take_oldest_over(size_t keep_bytes) noexcept {
  Block* chain = nullptr;
  while (oldest_ != nullptr && kept_size_bytes_ > keep_bytes) {
    Block* block = oldest_;
    unlink(*block);
    block->older = std::exchange(chain, block);
  }
  return chain;
}

void BlockCache::unmap(Block* chain) noexcept {
  while (chain != nullptr) {
    Block* block = std::exchange(chain, chain->older);
    munmap(static_cast<void*>(block), block->mapped_size_bytes);
  }
}

namespace {
// At load, before there is a second thread: a child that is forked while another thread makes it
// would wait for that thread for ever.
[[maybe_unused]] const BlockCache& made_at_load = client_blocks();
}  // namespace

BlockCache& client_blocks() {
  static BlockCache* const blocks = [] {
    auto* const made = new BlockCache(size_t{256} << 20, /*huge_pages=*/true);
    // A thread may hold the lock when another forks.
    pthread_atfork([] { client_blocks().mutex_.lock(); }, [] { client_blocks().mutex_.unlock(); },
                   [] { client_blocks().mutex_.unlock(); });
    return made;
  }();
  return *blocks;
}

}  // namespace rgpu
