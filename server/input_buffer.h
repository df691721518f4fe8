// InputBuffer: bytes as they came from a socket. Body: a frame's body where it lies among them.
//
// Bytes are received into blocks of the pool. A body borrows a part of its block, so that it is
// decoded where the kernel put it; the block returns to the pool with its last body. Copied is only
// what a block's end cuts in two, and a body that does not start at a multiple of 8.
//
// Threading: an InputBuffer is the network thread's. Bodies are let go on any thread.
// Lifetime:  blocks and bodies may outlive the pool and the buffer.
// Errors:    std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace rgpu::server {

// 8-byte aligned.
class Body {
 public:
  Body() = default;
  Body(std::shared_ptr<void> owner, std::span<std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}
  [[nodiscard]] static Body copy_of(std::span<const std::byte> bytes);
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<void> owner_;
  std::span<std::byte> bytes_;
};

class BlockPool {
 public:
  BlockPool();
  // 8-byte aligned, contents undefined. Only blocks of one block's size are kept for the next use.
  [[nodiscard]] std::shared_ptr<std::byte[]> take(size_t size_bytes);

 private:
  struct Kept;
  std::shared_ptr<Kept> kept_;
};

class InputBuffer {
 public:
  static constexpr size_t kBlockSizeBytes = 256u << 10;

  [[nodiscard]] size_t size_bytes() const noexcept { return end_ - begin_; }  // Held.
  // Where the next bytes go; then say how many came. Once `size_bytes` are held, they are in one
  // piece.
  [[nodiscard]] std::span<std::byte> room(size_t size_bytes);
  void received(size_t size_bytes) noexcept { end_ += size_bytes; }

  // Copies what is held into `target`, up to its size. Returns how much.
  size_t take(std::span<std::byte> target) noexcept;
  // As many must be held.
  [[nodiscard]] Body take_body(size_t size_bytes);

 private:
  BlockPool pool_;
  std::shared_ptr<std::byte[]> block_;
  size_t capacity_bytes_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace rgpu::server
