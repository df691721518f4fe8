// What parses as a frame header is the bytes it came from and keeps every limit.
#include <cstring>

#include "wire/frame.h"
#include "wire/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  std::array<std::byte, sizeof(FrameHeader)> bytes{};
  std::memcpy(bytes.data(), data, std::min(size_bytes, bytes.size()));
  const auto header = parse_frame_header(bytes);
  RGPU_CHECK(header || !header.error().message().empty());
  if (!header) return 0;
  RGPU_CHECK(to_bytes(*header) == bytes);
  RGPU_CHECK(header->body_size_bytes <= rgpu::limits::kBodySizeBytesMax);
  RGPU_CHECK(header->payload_size_bytes <= rgpu::limits::kPayloadSizeBytesMax);
  RGPU_CHECK(header->segment_count <= rgpu::limits::kSegmentsMax);
  RGPU_CHECK(header->stream < rgpu::limits::kStreamsMax);
  return 0;
}
