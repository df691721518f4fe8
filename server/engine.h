// Engine: what a worker does with verified batches. EngineSink: where the results go.
//
// This pair is the seam between the network (session.h) and PyTorch (torch/): neither sees the
// other's types.
//
// Threading: an Engine is used by the decode thread alone, except greet() and
//            allocate_segment(), which the network thread calls. An EngineSink may be called from
//            any thread.
// Lifetime:  the sink outlives the engine. A batch, and its segments, belong to the engine.
// Errors:    a Status given to EngineSink::failed() ends the session with that reason. Failures of
//            ops are no such thing: they poison their outputs and travel in replies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/input_buffer.h"
#include "wire/batch.h"
#include "wire/messages.h"
#include "wire/status.h"

namespace rgpu::server {

// A payload segment as it came from the socket. An engine may keep `owner` as a storage.
struct Segment {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

struct IncomingBatch {
  uint64_t sequence = 0;
  uint32_t stream = 0;
  int64_t received_ns = 0;  // event_time_ns() when its last byte came.
  Body body;                // What `reader` borrows.
  wire::BatchReader reader;
  std::vector<Segment> segments;
  size_t size_bytes = 0;  // Body and segments.
};

// A reply's payload: bytes that stay as they are until `owner` is let go.
struct OutgoingReply {
  wire::Reply reply;  // Busy and idle times are filled in by the sink.
  std::span<const std::byte> payload;
  std::shared_ptr<void> owner;
};

class EngineSink {
 public:
  virtual ~EngineSink() = default;
  // Replies, and then `sequence`: all batches up to it are applied. One wake-up for all of it.
  // Waits while too many bytes of replies are unsent.
  virtual void complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) = 0;
  // Ends the session. What was completed before is still sent.
  virtual void failed(Status reason) = 0;
};

struct EngineInfo {
  std::string torch_version;
  std::string device_type;
  std::vector<wire::DeviceInfo> devices;
  std::optional<wire::CudaInfo> cuda = {};
};

class Engine {
 public:
  virtual ~Engine() = default;
  // After greet().
  [[nodiscard]] virtual const EngineInfo& info() const noexcept = 0;
  // Once, before the first batch. Network thread. An error refuses the session.
  [[nodiscard]] virtual Status greet(const wire::Hello& hello) = 0;
  // kExhausted when there is no memory.
  [[nodiscard]] virtual Result<Segment> allocate_segment(uint64_t size_bytes) = 0;
  // In session order. Returns when the batch is decoded, and executed or queued for its streams.
  virtual void apply(std::unique_ptr<IncomingBatch> batch) = 0;
};

}  // namespace rgpu::server
