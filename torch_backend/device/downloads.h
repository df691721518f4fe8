// Downloads: copies to pinned memory that nobody waits for yet. After any synchronization with what
// they were issued before, their bytes are there: replies come in the order of their streams, and a
// synchronization is a reply too.
//
// Threading: any thread.
// Errors:    what a download failed of is thrown by the collect() that finds it, once.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

#include "runtime/session.h"

namespace rgpu::backend {

class Downloads {
 public:
  [[nodiscard]] static Downloads& get() noexcept;

  // The session answers `request` some time. It lives as long as the process.
  void add(Session& session, uint64_t request);
  // Ends those that have come and throws the first error among them. To be called after every
  // synchronization, of the device, a stream or an event. Never waits.
  void collect();
  // Before add(): at most kDownloadsMax are under way; waits for the oldest of more.
  void make_room();

 private:
  static constexpr size_t kDownloadsMax = 512;  // Half of what a session can have pending.
  struct Pending {
    Session* session = nullptr;
    uint64_t request = 0;
  };

  std::mutex mutex_;  // Guards what follows; not held over a wait.
  std::deque<Pending> pending_;
};

}  // namespace rgpu::backend
