#include "runtime/upload_feed.h"

#include <chrono>
#include <cstring>

#include "runtime/block_cache.h"

namespace rgpu {
namespace {

// So long the caller looks on without seeing any progress before it copies all the same.
constexpr std::chrono::milliseconds kPatience{1};

}  // namespace

void* UploadFeed::take_client_chunk() { return client_blocks().take(kChunkSizeBytes); }

UploadFeed::UploadFeed(std::span<const std::byte> source, TakeChunk take_chunk)
    : source_(source), take_chunk_(take_chunk), copied_from_(source.size()) {
  chunks_.reserve(source.size() / kChunkSizeBytes + 1);
}

UploadFeed::~UploadFeed() {
  while (!chunks_.empty()) give_last_chunk();
}

void UploadFeed::give_last_chunk() noexcept {
  BlockCache::give(chunks_.back().bytes);
  chunks_.pop_back();
}

bool UploadFeed::hand_over(const std::function<bool()>& alive) {
  std::unique_lock lock(mutex_);
  while (sent_ < copied_from_) {
    if (sending_) {
      const size_t seen = sent_;
      const auto wait_is_over = [&] { return !sending_ || sent_ >= copied_from_; };
      changed_.wait_for(lock, kPatience, wait_is_over);
      if (sent_ != seen) continue;
    }
    const size_t end = copied_from_;
    const size_t begin = end - std::min(kChunkSizeBytes, end - sent_);
    lock.unlock();
    auto* const bytes = alive() ? static_cast<std::byte*>(take_chunk_()) : nullptr;
    if (bytes == nullptr) return false;
    std::memcpy(bytes, source_.data() + begin, end - begin);
    lock.lock();
    if (sent_ >= end) {  // They met here, and the copy came too late.
      BlockCache::give(bytes);
      break;
    }
    chunks_.push_back({bytes, begin, end});
    copied_from_ = begin;
  }
  return true;
}

bool UploadFeed::is_handed_over() const {
  const std::lock_guard lock(mutex_);
  return sent_ >= copied_from_;
}

void UploadFeed::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

}  // namespace rgpu
