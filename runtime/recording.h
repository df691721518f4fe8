// Recording: a program's stream, as it went through a Session, in a file. recorder.h writes one,
// replay.h issues it again.
//
// The file, integers little-endian, numbers varints (wire/varint.h) unless a width is given:
//
//   52 47 50 55 52 45 43 0a   "RGPUREC\n"
//   u32 version (1), u32 flags: bit 0: the bytes of uploads are kept
//   the client's version and PyTorch's: size, text
//   events: u8 kind, gap in ns, and
//     1 record     stream, number, location, handle count, handles (zigzag differences to the
//                  handle before, whichever event it was in), immediates' size, immediates
//     2 upload     stream, handle (as above), storage size, offset, size, and its bytes if kept
//     3 free       handle (as above)
//     4 template   number, size, bytes (wire/op_template.h)
//     5 request    request, size of the memory for its reply
//     6 abandon    request: no record carries it
//     7 wait       request, u8 outcome
//     8 greeting   the program asked for the handshake's answer
//     9 poll       as wait: the program looked until the reply was there
//    10 flush
//   u8 0, number of events, u64 xxHash3 of all before the hash
//
// A gap is the time in which the program did something else: from the end of the event before, in
// whichever thread, to the beginning of this one. Events of several threads stand in an order in
// which each comes after all it depends on. Handles, template numbers and requests are the recorded
// session's own. Which immediates are a request is told by wire::RecordShape::asks and by
// OpTemplate::replies, so that commands to come need no word here.
//
// Threading: a Recording is a value; each reader is one thread's.
// Lifetime:  a reader borrows its Recording; an event borrows both, until the next one.
// Errors:    kInvalidArgument, one line with the file's name, for what a Recorder did not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/session.h"

namespace rgpu {

namespace recording {
inline constexpr char kMagic[8] = {'R', 'G', 'P', 'U', 'R', 'E', 'C', '\n'};
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kKeepsBytes = 1;  // A flag.
inline constexpr uint64_t kFileSizeBytesMax = uint64_t{1} << 30;
inline constexpr uint64_t kEventsMax = uint64_t{1} << 28;
inline constexpr uint64_t kGapNsMax = uint64_t{3600} * 1'000'000'000;  // A longer one is cut.
inline constexpr uint64_t kHandleMax = UINT32_MAX;  // So many can be reserved at once.
}  // namespace recording

struct RecordedEvent {
  enum class Kind : uint8_t {
    kEnd = 0,
    kRecord = 1,
    kUpload = 2,
    kFree = 3,
    kTemplate = 4,
    kRequest = 5,
    kAbandon = 6,
    kWait = 7,
    kGreeting = 8,
    kPoll = 9,
    kFlush = 10,
  };
  enum class Outcome : uint8_t { kReplied = 0, kFailed = 1, kGivenUp = 2 };
  static constexpr uint32_t kAsksNothing = UINT32_MAX;

  Kind kind = Kind::kEnd;
  uint64_t gap_ns = 0;
  uint32_t stream = 0;                  // kRecord, kUpload
  Record record;                        // kRecord; its number alone also in kTemplate
  uint32_t request_at = kAsksNothing;   // kRecord: the request's place in the immediates, in bytes
  Handle handle = 0;                    // kUpload, kFree
  uint64_t storage_size_bytes = 0;      // kUpload
  uint64_t offset_bytes = 0;            // kUpload
  uint64_t size_bytes = 0;              // kUpload; kRequest: of the memory for the reply
  std::span<const std::byte> bytes;     // kTemplate; kUpload: empty unless they are kept
  uint64_t request = 0;                 // kRequest, kAbandon, kWait, kPoll; kRecord that asks
  Outcome outcome = Outcome::kReplied;  // kWait, kPoll
};

// What is known of a whole recording.
struct RecordingFacts {
  std::string client_version;
  std::string torch_version;
  bool keeps_bytes = false;
  uint64_t events = 0;
  uint64_t records = 0;
  uint64_t waits = 0;                  // For replies.
  uint64_t upload_size_bytes_max = 0;  // Of one upload.
  Handle handle_max = 0;
  // Index of the first event behind the first wait for a kSync, which parts a program's preparation
  // from what it is about; 0 when it never synchronizes.
  uint64_t main_part = 0;
  uint64_t main_gap_ns = 0;   // All gaps of the main part together.
  bool ends_waiting = false;  // Nothing was issued after the last wait.
};

class Recording {
 public:
  [[nodiscard]] static Result<Recording> open(const std::string& path);
  // `name`: for messages. Reads all of it once, so that no reader of it meets an error.
  [[nodiscard]] static Result<Recording> parse(std::vector<std::byte> bytes, std::string name);

  [[nodiscard]] const RecordingFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  friend class RecordingReader;
  [[nodiscard]] Status verify();

  std::vector<std::byte> bytes_;
  std::string name_;
  size_t events_at_ = 0;
  RecordingFacts facts_;
};

class RecordingReader {
 public:
  explicit RecordingReader(const Recording& recording);
  // The next event; kEnd once and for all behind the last.
  [[nodiscard]] Status next(RecordedEvent& event);

 private:
  struct TemplateShape {
    uint32_t handle_count = 0;
    uint32_t immediates_size_bytes = 0;
    bool replies = false;
  };

  [[nodiscard]] Status read_record(RecordedEvent& event);
  [[nodiscard]] Status check_shape(RecordedEvent& event) const;
  [[nodiscard]] Status read_upload(RecordedEvent& event);
  [[nodiscard]] Status read_template(RecordedEvent& event);
  [[nodiscard]] Status read_request(RecordedEvent& event);
  [[nodiscard]] Status read_end();
  [[nodiscard]] Status read_number(uint64_t& value, const char* what, uint64_t maximum);
  [[nodiscard]] Status read_handle(Handle& handle);
  [[nodiscard]] Status read_bytes(std::span<const std::byte>& bytes, uint64_t size_bytes);
  [[nodiscard]] Status wrong(const std::string& problem) const;

  const Recording& recording_;
  const std::byte* at_;
  const std::byte* end_;
  uint64_t events_ = 0;
  Handle handle_ = 0;
  std::vector<Handle> handles_;           // Of the event.
  std::vector<TemplateShape> templates_;  // Since they were last forgotten.
  // Requests that were made and have not ended; whether a record carries them.
  std::unordered_map<uint64_t, bool> requests_;
};

}  // namespace rgpu
