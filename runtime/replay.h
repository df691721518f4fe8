// Replay: issues a Recording again through a Session, to a real server, under any flush policy.
//
// Handles, template numbers and requests are made anew by the session; a thread waits where the
// program waited. All is issued by the one thread that calls play(), in the recording's order.
//
// Threading: one thread.
// Lifetime:  the session and the recording outlive it. What the recording did not free stays alive
//            in the session.
// Errors:    those of the session; kDevice when a reply fails that had not failed when it was
//            recorded (a server of another PyTorch, data that were not kept), with what it said.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/recording.h"

namespace rgpu {

class Replay {
 public:
  enum class Pace : uint8_t {
    kRecorded,  // With the program's own gaps. A short one is spun away, since the program
                // computed.
    kAtOnce,
  };
  struct Figures {
    uint64_t events = 0;
    std::chrono::nanoseconds calls{0};    // Wall time within calls that do not wait.
    std::chrono::nanoseconds gap_cpu{0};  // CPU time that the gaps took from the calling thread.
  };

  Replay(Session& session, const Recording& recording);

  // Plays events until `events_end` of them have been played in all, or the recording is over.
  [[nodiscard]] Status play(uint64_t events_end, Pace pace, WaitObserver& observer);
  [[nodiscard]] const Figures& figures() const noexcept { return figures_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Request {
    uint64_t number = 0;  // In this session.
    std::shared_ptr<std::byte[]> memory;
  };

  [[nodiscard]] Status issue(const RecordedEvent& event, WaitObserver& observer);
  [[nodiscard]] Status issue_record(const RecordedEvent& event, WaitObserver& observer);
  [[nodiscard]] Status issue_upload(const RecordedEvent& event, WaitObserver& observer);
  [[nodiscard]] Status define_template(const RecordedEvent& event);
  [[nodiscard]] Status make_request(const RecordedEvent& event);
  [[nodiscard]] Status wait(const RecordedEvent& event, WaitObserver& observer);
  [[nodiscard]] Result<wire::Reply> poll(uint64_t request, WaitObserver& observer);
  void pass_gap(Clock::time_point since, std::chrono::nanoseconds gap);

  Session& session_;
  const Recording& recording_;
  RecordingReader reader_;
  const Handle handles_base_;                 // Added to each recorded handle.
  std::shared_ptr<const std::byte[]> zeros_;  // For the largest upload.
  std::vector<uint32_t> templates_;           // Numbers in this session, by recorded index.
  std::unordered_map<uint64_t, Request> requests_;
  std::vector<Handle> handles_;        // Of the record being issued.
  std::vector<std::byte> immediates_;  // The same.
  Figures figures_;
};

}  // namespace rgpu
