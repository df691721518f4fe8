// UploadFeed: a large upload's bytes while its caller is still inside upload().
//
// The I/O thread sends from the front, straight out of the caller's memory, as long as the socket
// takes bytes at once. When it does not, the caller copies from the back; where the two meet, the
// caller is free to go. On a fast line little is copied, on a slow one nearly everything, and in no
// case does the caller wait for the line: only for a thread that is getting on.
//
// Threading: hand_over(), is_handed_over() and abandon() by the caller; the rest by the I/O thread.
//            The lock is held while bytes of the caller's are given to the socket, which never
//            blocks.
// Lifetime:  the source must live until hand_over() returned true or abandon() returned.
// Errors:    hand_over() returns false when there is no memory to copy to, or `alive` says no.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace rgpu {

class UploadFeed {
 public:
  static constexpr size_t kSizeBytesMin = size_t{1} << 20;  // Smaller uploads are simply copied.
  static constexpr size_t kChunkSizeBytes = size_t{1} << 20;
  static constexpr size_t kSendSizeBytesMax = size_t{512} << 10;

  // Chunks are given back with BlockCache::give().
  using TakeChunk = void* (*)();
  explicit UploadFeed(std::span<const std::byte> source, TakeChunk take_chunk = &take_client_chunk);
  ~UploadFeed();
  UploadFeed(const UploadFeed&) = delete;
  UploadFeed& operator=(const UploadFeed&) = delete;

  [[nodiscard]] bool hand_over(const std::function<bool()>& alive);
  [[nodiscard]] bool is_handed_over() const;
  void abandon();  // The source is touched no more; what is not sent is lost.

  // `send` takes a span and returns how many of its bytes the socket took; fewer than all mean that
  // it takes no more now.
  template <typename Send>
  size_t send(Send&& send);
  [[nodiscard]] bool is_sent() const noexcept { return sent_ == source_.size(); }
  [[nodiscard]] bool is_abandoned() const noexcept { return abandoned_; }

 private:
  struct Chunk {
    std::byte* bytes = nullptr;
    size_t begin = 0;  // Offsets in the source.
    size_t end = 0;
  };
  static void* take_client_chunk();
  void give_last_chunk() noexcept;

  const std::span<const std::byte> source_;
  const TakeChunk take_chunk_;
  mutable std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  size_t copied_from_;         // From here on the bytes are in chunks, or were sent.
  std::vector<Chunk> chunks_;  // From the back to the front. The I/O thread's own once handed over.
  bool sending_ = false;       // The I/O thread is at it and the socket takes bytes.
  std::atomic<bool> abandoned_{false};
  std::atomic<size_t> sent_{0};  // Written by the I/O thread.
};

template <typename Send>
size_t UploadFeed::send(Send&& send) {
  std::unique_lock lock(mutex_);
  if (abandoned_) return 0;
  const size_t sent = sent_;
  if (sent >= copied_from_) {
    lock.unlock();
    const Chunk chunk = chunks_.back();
    const size_t size =
        send(std::span<const std::byte>(chunk.bytes + (sent - chunk.begin), chunk.end - sent));
    sent_ = sent + size;
    if (sent + size == chunk.end) give_last_chunk();
    return size;
  }
  const size_t wanted = std::min(kSendSizeBytesMax, copied_from_ - sent);
  const size_t size = send(source_.subspan(sent, wanted));
  sent_ = sent + size;
  sending_ = size == wanted;
  lock.unlock();
  changed_.notify_one();
  return size;
}

}  // namespace rgpu
