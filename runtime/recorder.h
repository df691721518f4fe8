// Recorder: writes what a program issues through a Session into a file (recording.h), while the
// program runs. RGPU_RECORD=FILE in the environment records any program's; "%p" in it becomes the
// process's id, and a process's second session goes to FILE.2.
//
// The bytes of uploads, a program's data and weights, are left out unless RGPU_RECORD_BYTES is set:
// a recording then holds ops, shapes, scalars and sizes, and is replayed with zeros. Shapes that
// depend on data (nonzero, a mask) need the bytes.
//
// Threading: any thread, under a lock of its own that nobody holds while waiting.
// Lifetime:  a session's own. What is buffered is written by finish(), not in a forked child.
// Errors:    the first one is said on stderr, once, and ends the recording; the program goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/recording.h"

namespace rgpu {

class Recorder {
 public:
  using Clock = std::chrono::steady_clock;

  // What `options` and the environment ask for; nullptr: nothing, or the file cannot be made.
  [[nodiscard]] static std::unique_ptr<Recorder> open(const SessionOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Each is called when the call it tells of has succeeded; `began`: when that began.
  void record(Clock::time_point began, uint32_t stream, const Record& record) noexcept;
  void upload(Clock::time_point began, uint32_t stream, Handle handle, uint64_t storage_size_bytes,
              uint64_t offset_bytes, std::span<const std::byte> bytes) noexcept;
  void free(Clock::time_point began, Handle handle) noexcept;
  void request(Clock::time_point began, uint64_t request, uint64_t size_bytes) noexcept;
  void abandon(Clock::time_point began, uint64_t request) noexcept;
  void wait(Clock::time_point began, uint64_t request, const Result<wire::Reply>& reply) noexcept;
  // The time of polls that found nothing is no program's own.
  void poll(Clock::time_point began, uint64_t request,
            const std::optional<Result<wire::Reply>>& reply) noexcept;
  void flush(Clock::time_point began) noexcept;
  void greeting(Clock::time_point began) noexcept;
  // Calls define() meanwhile, so that templates stand in the order of their numbers.
  template <typename Define>
  [[nodiscard]] Result<uint32_t> define_template(Clock::time_point began,
                                                 std::span<const std::byte> bytes, Define define) {
    const std::lock_guard lock(mutex_);
    Result<uint32_t> number = define();
    if (number) write_template(began, *number, bytes);
    return number;
  }

  // The recording is whole. Idempotent; what comes later is ignored.
  void finish() noexcept;

 private:
  struct Hash;
  using Kind = RecordedEvent::Kind;

  Recorder(std::FILE* file, std::string path, bool keeps_bytes);
  void write_ended(Clock::time_point began, Kind kind, uint64_t request,
                   const Result<wire::Reply>& reply) noexcept;
  void write_template(Clock::time_point began, uint32_t number,
                      std::span<const std::byte> bytes) noexcept;
  // Under mutex_: `fill` appends the event's fields to buffer_.
  template <typename Fill>
  void event(Clock::time_point began, Kind kind, Fill fill) noexcept;
  void number(uint64_t value);
  void handle(Handle handle);
  void text(std::string_view text);
  void bytes(std::span<const std::byte> bytes);
  void write_out();  // Throws nothing; gives up on an error.
  void give_up(const char* problem) noexcept;

  const std::string path_;
  const bool keeps_bytes_;
  std::mutex mutex_;  // Guards all below.
  std::FILE* file_;   // nullptr: over.
  std::unique_ptr<Hash> hash_;
  std::vector<uint8_t> buffer_;
  uint64_t events_ = 0;
  Handle handle_ = 0;
  Clock::time_point ended_;  // The event before.
};

// One call of a Session, as far as it is recorded: takes its time, if anybody asks.
class RecordedCall {
 public:
  explicit RecordedCall(Recorder* recorder) noexcept : recorder_(recorder) {
    if (recorder_ != nullptr) [[unlikely]]
      began_ = Recorder::Clock::now();
  }
  // `note(recorder, began)`, when there is a recorder.
  template <typename Note>
  void succeeded(Note note) const {
    if (recorder_ != nullptr) [[unlikely]]
      note(*recorder_, began_);
  }

 private:
  Recorder* const recorder_;
  Recorder::Clock::time_point began_;
};

}  // namespace rgpu
