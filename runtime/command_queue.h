// CommandQueue: what the issuing threads hand to the I/O thread — rings, templates, uploads, frees.
//
// One sequence orders all of it: every record gets the next number, and a template, a free or an
// upload remembers the number it belongs to. The drain (drain.h) puts the pieces back in order.
//
// Threading: the issue lock orders appends and is held for a copy, never for a wait. The I/O thread
//            takes it only to park and to fetch templates and uploads, never per record.
// Lifetime:  handles and immediates are copied; payload owners are kept until release_staged().
// Errors:    an Outcome says what an append came to; check() says what is wrong with a record.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/flush_policy.h"
#include "runtime/free_list.h"
#include "runtime/record_ring.h"
#include "runtime/session.h"
#include "wire/limits.h"

namespace rgpu {

class CommandQueue {
 public:
  enum class Outcome : uint8_t {
    kAppended,
    kAppendedWake,  // Appended, and the policy wants the parked I/O thread to be woken.
    kFull,          // No room at this moment.
    kRefused,       // It will never fit: see check().
  };
  struct Template {
    uint64_t sequence = 0;  // Later records may use it.
    uint64_t epoch = 0;     // How often templates had been forgotten.
    std::vector<std::byte> bytes;
  };

  CommandQueue(const SessionOptions& options, std::shared_ptr<FlushPolicy> policy);
  ~CommandQueue();

  // Issuing threads.
  // `payload`: a kUpload record's segment, else nullptr. Moved from when appended.
  [[nodiscard]] Outcome try_append(uint32_t stream, const Record& record, Payload* payload);
  [[nodiscard]] Status check(uint32_t stream, const Record& record) const;
  [[nodiscard]] Result<uint32_t> define_template(std::span<const std::byte> bytes);
  // Reserves room for upload bytes; what is larger than the bound is let through alone.
  [[nodiscard]] bool try_stage(uint64_t size_bytes) noexcept;
  void unstage(uint64_t size_bytes) noexcept;  // They were not issued after all.
  // True: wake the I/O thread.
  [[nodiscard]] bool free(Handle handle) noexcept { return frees_.add(handle, issued_); }
  // A thread waits for what was issued so far. True: something is not sent, wake the I/O thread.
  [[nodiscard]] bool request_flush() noexcept;
  // Changes whenever room was made.
  [[nodiscard]] uint64_t room_epoch() const;
  // Waits a slice, or until room_epoch() differs from `seen`.
  void wait_for_room(uint64_t seen, std::chrono::milliseconds slice);
  void set_policy(std::shared_ptr<FlushPolicy> policy);
  [[nodiscard]] std::shared_ptr<FlushPolicy> policy() const;

  // I/O thread.
  [[nodiscard]] FlushState flush_state() const noexcept;  // Without an age.
  // From now on appends say kAppendedWake when the policy wants it. False: look again first.
  [[nodiscard]] bool try_park();
  // From now on the append with which so much is pending says kAppendedWake, once.
  // False: so much is pending, or a thread waits.
  [[nodiscard]] bool try_doze(uint64_t size_bytes);
  void unpark();  // Ends both.
  [[nodiscard]] FreeList& frees() noexcept { return frees_; }
  [[nodiscard]] RecordRing* ring(uint32_t stream) const noexcept;
  // Streams that have a ring, in the order of their first use.
  [[nodiscard]] uint32_t used_stream_count() const noexcept;
  [[nodiscard]] uint32_t used_stream(uint32_t index) const noexcept { return used_streams_[index]; }
  void take_templates(std::vector<Template>& taken);  // `taken` is empty; memory is exchanged.
  void take_uploads(std::vector<Payload>& taken);
  void note_drained(uint64_t sequence, uint64_t ring_bytes) noexcept;
  void announce_room();  // Also at the session's end, so that producers see it.
  void release_staged(uint64_t size_bytes) noexcept;
  void note_in_flight(uint32_t batches) noexcept;

  // Any thread.
  [[nodiscard]] uint64_t issued() const noexcept { return issued_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t frees_total() const noexcept { return frees_.total(); }
  [[nodiscard]] uint64_t staged_total() const noexcept { return staged_total_; }
  [[nodiscard]] uint64_t templates_defined() const noexcept;
  [[nodiscard]] uint32_t policy_version() const noexcept;

 private:
  [[nodiscard]] RecordRing& ring_for_append(uint32_t stream);
  // Whether the I/O thread, asleep, is to see what was appended. Under issue_mutex_.
  [[nodiscard]] bool should_wake();

  const uint32_t ring_size_bytes_;
  const uint64_t staged_size_bytes_max_;

  mutable std::mutex issue_mutex_;
  // Written under issue_mutex_, read by any thread.
  std::atomic<uint64_t> issued_{0};        // Records so far. Stored last: what it counts is there.
  std::atomic<uint64_t> issued_bytes_{0};  // Ring bytes so far.
  std::atomic<uint64_t> flush_sequence_{0};  // Somebody waits for the records up to here.
  std::atomic<uint64_t> templates_defined_{0};
  std::atomic<uint32_t> used_stream_count_{0};
  std::atomic<uint32_t> policy_version_{0};
  std::array<std::atomic<RecordRing*>, limits::kStreamsMax> rings_{};  // Owned.
  std::array<uint16_t, limits::kStreamsMax> used_streams_{};
  // Guarded by issue_mutex_.
  std::shared_ptr<FlushPolicy> policy_;
  bool parked_ = false;
  uint64_t doze_size_bytes_ = UINT64_MAX;  // See try_doze().
  std::vector<Template> templates_;
  std::vector<Payload> uploads_;
  uint32_t live_templates_ = 0;
  uint64_t template_epoch_ = 0;

  FreeList frees_;

  // Written by the I/O thread.
  alignas(64) std::atomic<uint64_t> drained_{0};
  std::atomic<uint64_t> drained_bytes_{0};
  std::atomic<uint32_t> batches_in_flight_{0};
  std::atomic<uint64_t> staged_total_{0};  // Upload bytes so far.
  std::atomic<uint64_t> staged_bytes_{0};  // Raised by issuing threads, lowered by the I/O thread.

  mutable std::mutex room_mutex_;
  std::condition_variable room_changed_;
  uint64_t room_epoch_ = 0;  // Guarded by room_mutex_.
};

}  // namespace rgpu
