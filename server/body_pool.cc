#include "server/body_pool.h"

#include <algorithm>
#include <utility>

namespace rgpu::server {
namespace {

constexpr size_t kBodiesMax = 16;
constexpr size_t kCapacityBytesMin = 64u << 10;
constexpr size_t kCapacityBytesMax = 1u << 20;  // Larger bodies are rare: they are not kept.

}  // namespace

Body BodyPool::take(size_t size_bytes) {
  Body body;
  {
    const std::lock_guard lock(mutex_);
    if (!bodies_.empty() && bodies_.back().capacity_bytes() >= size_bytes) {
      body = std::move(bodies_.back());
      bodies_.pop_back();
    }
  }
  if (body.capacity_bytes() < size_bytes) body = Body(std::max(size_bytes, kCapacityBytesMin));
  body.resize(size_bytes);
  return body;
}

void BodyPool::give(Body body) noexcept {
  if (body.capacity_bytes() < kCapacityBytesMin || body.capacity_bytes() > kCapacityBytesMax)
    return;
  const std::lock_guard lock(mutex_);
  if (bodies_.size() < kBodiesMax) bodies_.push_back(std::move(body));
}

}  // namespace rgpu::server
