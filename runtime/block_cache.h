// BlockCache: large blocks of memory that are kept when they are given back. Fresh memory costs a
// page fault every 4 KiB, which for a tensor on its way through a socket is as much as the way.
//
// Threading: any thread; one short lock, never held over a system call.
// Lifetime:  a block knows its cache, which must outlive it: caches are made once and leaked.
// Errors:    take() returns nullptr when there is no memory, even after all that was kept was let
//            go of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace rgpu {

class BlockCache {
 public:
  // Smaller blocks are better left to malloc, which has nothing to fault for them.
  static constexpr size_t kBlockSizeBytesMin = size_t{1} << 20;

  // Keeps at most `kept_size_bytes_max`; what was given back longest ago goes first.
  // `huge_pages`: asks the system for them, where they exist, for fresh blocks.
  explicit BlockCache(size_t kept_size_bytes_max, bool huge_pages = false)
      : kept_size_bytes_max_(kept_size_bytes_max), huge_pages_(huge_pages) {}
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `size_bytes` bytes of undefined contents, aligned to 64. The block that was given back
  // last of those that fit: it may still be in the processor's cache.
  [[nodiscard]] void* take(size_t size_bytes) noexcept;
  static void give(void* block) noexcept;  // A deleter.

  // Whether take() returned exactly this pointer and it was not given back. Cheap for most others.
  [[nodiscard]] bool is_taken(const void* pointer) const noexcept;
  [[nodiscard]] size_t kept_size_bytes() const noexcept;
  void trim() noexcept;  // Lets go of all that is kept.

 private:
  struct Block;

  [[nodiscard]] static size_t mapped_size_bytes(size_t size_bytes) noexcept;
  [[nodiscard]] Block* take_kept(size_t mapped_size_bytes) noexcept;
  [[nodiscard]] Block* map(size_t mapped_size_bytes) noexcept;
  void unlink(Block& block) noexcept;                                 // Under mutex_.
  [[nodiscard]] Block* take_oldest_over(size_t keep_bytes) noexcept;  // Under mutex_; a chain.
  static void unmap(Block* chain) noexcept;
  friend BlockCache& client_blocks();

  const size_t kept_size_bytes_max_;
  const bool huge_pages_;
  mutable std::mutex mutex_;  // Guards what follows.
  Block* newest_ = nullptr;
  Block* oldest_ = nullptr;
  size_t kept_size_bytes_ = 0;
  std::unordered_set<const void*> taken_;
};

// The client's own, for what its tensors pass through: 256 MiB kept at most. Works in a forked
// child too.
[[nodiscard]] BlockCache& client_blocks();

}  // namespace rgpu
