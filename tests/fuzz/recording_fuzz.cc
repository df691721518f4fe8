// What parses is read to its end without an error, within its limits. The input stands without the
// hash at a recording's end, which is put there, since no fuzzer finds one.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/recording.h"
#include "wire/limits.h"

namespace rgpu {
namespace {

void check_events(const Recording& recording) {
  RecordingReader reader(recording);
  RecordedEvent event;
  uint64_t events = 0;
  while (true) {
    RGPU_CHECK(reader.next(event).ok());
    if (event.kind == RecordedEvent::Kind::kEnd) break;
    ++events;
    RGPU_CHECK(event.stream < limits::kStreamsMax);
    RGPU_CHECK(event.record.handles.size() <= limits::kHandlesPerRecordMax);
    for (const Handle handle : event.record.handles) {
      RGPU_CHECK(handle >= 1 && handle <= recording.facts().handle_max);
    }
    if (event.request_at != RecordedEvent::kAsksNothing) {
      RGPU_CHECK(event.request_at + sizeof(uint64_t) <= event.record.immediates.size());
    }
    RGPU_CHECK(event.kind != RecordedEvent::Kind::kUpload ||
               event.bytes.size() == (recording.facts().keeps_bytes ? event.size_bytes : 0));
  }
  RGPU_CHECK(events == recording.facts().events);
  RGPU_CHECK(recording.facts().main_part <= events);
}

}  // namespace
}  // namespace rgpu

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const auto* const start = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(start, start + size_bytes);
  const auto as_it_is = rgpu::Recording::parse(bytes, "input");
  RGPU_CHECK(as_it_is || !as_it_is.error().message().empty());
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  const auto* const word = reinterpret_cast<const std::byte*>(&hash);
  bytes.insert(bytes.end(), word, word + sizeof hash);
  const auto recording = rgpu::Recording::parse(std::move(bytes), "input");
  if (recording) rgpu::check_events(*recording);
  return 0;
}
