// TraceEvent: what the server notes while a client traces it (Command::kStartTrace, kStopTrace).
//
// The trace is a storage of these, little-endian, in no particular order. Times are nanoseconds on
// the server's clock, the one that the reply to kStartTrace reads.
#pragma once

#include <cstdint>
#include <type_traits>

namespace rgpu::wire {

enum class TraceKind : uint32_t {
  kExecuted = 1,  // A record, from its launch to its end; on an accelerator to its launch's end.
  kReceived = 2,  // A batch, from its last byte to its last record's decoding. `record`: the last.
};

struct TraceEvent {
  uint64_t record = 0;  // Counted from 1 over all records of the session but kFree and kStream.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t stream = 0;
  uint32_t kind = 0;  // TraceKind.
};
static_assert(sizeof(TraceEvent) == 32 && std::is_trivially_copyable_v<TraceEvent>);

inline constexpr uint32_t kTraceEventsMax = 1u << 20;  // Later ones are not kept.

}  // namespace rgpu::wire
