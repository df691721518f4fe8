// Outbox: replies and acknowledgements on their way to the socket.
//
// Threading: add() may be called from any thread; the rest is the network thread's.
// Lifetime:  a reply's payload stays where it is until its frame is destroyed.
// Errors:    none. Bounded: add() waits while too many bytes are unsent, unless it was closed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "server/engine.h"
#include "server/work_clock.h"
#include "wire/frame.h"

namespace rgpu::server {

// One frame on its way out: header, body and payload are written as they lie.
struct OutgoingFrame {
  std::array<std::byte, sizeof(wire::FrameHeader)> header{};
  std::vector<std::byte> body;
  OutgoingReply reply;  // Only its payload is used, and only a Reply has one.
};

[[nodiscard]] OutgoingFrame make_frame(wire::FrameKind kind, uint64_t sequence,
                                       std::vector<std::byte> body);

class Outbox {
 public:
  explicit Outbox(WorkClock& clock) : clock_(clock) {}

  // See EngineSink::complete(). True: take() is due, and nobody was told so before.
  [[nodiscard]] bool add(std::span<OutgoingReply> replies, uint64_t applied_sequence);
  // Appends what is to be written next, a bounded number of frames. Call it until there is nothing.
  void take(std::vector<OutgoingFrame>& frames);
  // From now on add() waits no more.
  void close();

  [[nodiscard]] uint64_t last_acked() const noexcept { return last_acked_; }

 private:
  WorkClock& clock_;
  uint64_t last_acked_ = 0;

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable room_;
  std::vector<OutgoingReply> replies_;
  size_t size_bytes_ = 0;
  uint64_t applied_ = 0;
  bool take_due_ = false;
  bool closed_ = false;
};

}  // namespace rgpu::server
