// Body: the bytes of one frame's body, 8-byte aligned. BodyPool keeps used ones for the next frame.
//
// Threading: the network thread takes; whichever thread finished a batch gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace rgpu::server {

class Body {
 public:
  Body() = default;
  explicit Body(size_t capacity_bytes)
      : words_(std::make_unique_for_overwrite<uint64_t[]>((capacity_bytes + 7) / 8)),
        capacity_bytes_((capacity_bytes + 7) / 8 * 8) {}

  [[nodiscard]] std::span<std::byte> bytes() noexcept {
    return {reinterpret_cast<std::byte*>(words_.get()), size_bytes_};
  }
  [[nodiscard]] size_t capacity_bytes() const noexcept { return capacity_bytes_; }
  void resize(size_t size_bytes) noexcept { size_bytes_ = size_bytes; }  // Within the capacity.

 private:
  std::unique_ptr<uint64_t[]> words_;
  size_t capacity_bytes_ = 0;
  size_t size_bytes_ = 0;
};

class BodyPool {
 public:
  [[nodiscard]] Body take(size_t size_bytes);  // Contents undefined.
  void give(Body body) noexcept;

 private:
  std::mutex mutex_;
  std::vector<Body> bodies_;
};

}  // namespace rgpu::server
