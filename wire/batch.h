// Batch: many records in one FlatBuffers table, as columns.
//
// A record is a number, a location, some handles and some immediates. Numbers below
// kFirstTemplate are the commands listed here; number n ≥ kFirstTemplate is the op template that
// was the (n - kFirstTemplate)th defined since the session began or forgot its templates, counted
// from 0. Templates of a batch are defined before its first record, in order.
//
// Columns are bytes: `numbers` and `locations` varints (locations as zigzag differences, only for
// records that use a template), `handles` zigzag varint differences from the handle before in the
// batch (the first one from 0), `immediates` raw little-endian.
//
// Threading: one thread at a time uses an encoder or a reader.
// Lifetime:  BatchReader borrows the body it was opened on; BatchEncoder::finish() borrows the
//            encoder until its next call.
// Errors:    a reader returns kInvalidArgument for whatever a correct encoder cannot have written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wire/status.h"

namespace rgpu::wire {

using Handle =
    uint64_t;  // 1 … limits::kHandleMax, chosen by the client; a storage or an opaque value.

enum class Command : uint32_t {
  kFree = 0,             // handles: 1
  kAllocate = 1,         // handles: 1 (new). immediates: u64 size_bytes. Contents undefined.
  kUpload = 2,           // handles: 1. immediates: u64 storage_size_bytes, u64 offset_bytes,
                         // u64 size_bytes. Takes the batch's next payload segment. A new handle is
                         // allocated first with storage_size_bytes; a known one keeps its size.
  kFetch = 3,            // handles: 1. immediates: u64 request, u64 offset_bytes, u64 size_bytes.
                         // Replies with the bytes as payload, or with the handle's error.
  kSync = 4,             // immediates: u64 request. Replies when all before it on every stream is
                         // done, with the first error no reply has reported yet.
  kStream = 5,           // immediates: u32 stream. Later records of the batch run on that stream
                         // (a batch starts on its frame header's stream).
  kForgetTemplates = 6,  // Numbering starts anew after this record. Only as a batch's last record.
  kResize = 7,           // handles: 1. immediates: u64 size_bytes. Keeps the common prefix.
  kMemory = 8,           // immediates: u64 request, u32 device. Replies when all before it on every
                         // stream is done, with twelve values: docs/protocol.md.
  kRecordEvent = 9,  // handles: 1, an event; new, or recorded anew. It is reached when all before
                     // it on this stream is done.
  kWaitEvent = 10,   // handles: 1, an event. Later records of this stream run once it is reached.
  kQueryEvent = 11,  // handles: 1, an event. immediates: u64 request. Replies as soon as it is
                     // reached, on whatever stream this stands, with a value: the time then, in
                     // ns on a clock of the server's.
  kSyncStream = 12,  // immediates: u64 request. As kSync, for this stream alone.
  kStartTrace = 13,  // immediates: u64 request. From here on the server keeps TraceEvents
                     // (wire/trace.h). Replies with a value: its clock's ns.
  kStopTrace = 14,   // handles: 1 (new), a storage of what was kept. immediates: u64 request.
                     // Replies with a value: that storage's bytes.
  kSwitches = 15,    // immediates: Switches (wire/switches.h), which hold for all later records of
                     // the session.
};
inline constexpr uint32_t kFirstTemplate = 16;

// Handles and immediates a command carries. number < kFirstTemplate; unknown ones give an error.
struct RecordShape {
  uint32_t handle_count = 0;
  uint32_t immediates_size_bytes = 0;
  bool asks = false;  // The first eight bytes of its immediates are a request number.
};
[[nodiscard]] Result<RecordShape> command_shape(uint32_t number);

class BatchEncoder {
 public:
  BatchEncoder();
  ~BatchEncoder();
  BatchEncoder(BatchEncoder&&) noexcept;
  BatchEncoder& operator=(BatchEncoder&&) noexcept;

  void clear();  // Keeps the memory, so that a steady state allocates nothing.
  void add_template(std::span<const std::byte> encoded_op_template);
  void add_record(uint32_t number, uint32_t location, std::span<const Handle> handles,
                  std::span<const std::byte> immediates);
  void add_segment(uint64_t size_bytes);

  [[nodiscard]] uint32_t record_count() const noexcept;
  [[nodiscard]] uint32_t segment_count() const noexcept;
  [[nodiscard]] size_t size_bytes() const noexcept;  // Of the columns and templates so far.
  [[nodiscard]] std::span<const std::byte> finish();

 private:
  struct Columns;
  std::unique_ptr<Columns> columns_;
};

class BatchReader {
 public:
  // Verifies the whole body. `body` is 8-byte aligned.
  [[nodiscard]] static Result<BatchReader> open(std::span<const std::byte> body);

  [[nodiscard]] uint32_t template_count() const noexcept;
  [[nodiscard]] std::span<const std::byte> template_bytes(uint32_t index) const;
  [[nodiscard]] uint32_t record_count() const noexcept;
  [[nodiscard]] std::span<const uint64_t> segments() const noexcept;  // Sizes in bytes.

  struct Record {
    uint32_t number = 0;
    uint32_t location = 0;  // 0 for commands.
  };
  // The next record. At most record_count() calls.
  [[nodiscard]] Result<Record> next();
  // The record's handles; fills the whole span. Each is within 1 … kHandleMax.
  [[nodiscard]] Status read_handles(std::span<Handle> handles);
  [[nodiscard]] Result<std::span<const std::byte>> read_immediates(size_t size_bytes);
  // After the last record: error when a column has bytes left over.
  [[nodiscard]] Status finish() const;

 private:
  struct Cursor {
    const std::byte* at = nullptr;
    const std::byte* end = nullptr;
  };
  const void* table_ = nullptr;
  Cursor numbers_, locations_, handles_, immediates_;
  uint32_t record_count_ = 0;
  uint32_t records_read_ = 0;
  uint32_t location_ = 0;
  Handle handle_ = 0;
};

}  // namespace rgpu::wire
