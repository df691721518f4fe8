#include "wire/frame.h"

#include <cstring>
#include <string>

#include "wire/limits.h"

namespace rgpu::wire {
namespace {

// As a C string literal would have it: printable ASCII as it is, the rest escaped.
std::string quoted(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\"";
  for (const std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    if (c == '\r') {
      text += "\\r";
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '"' || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c >= 0x20 && c < 0x7f) {
      text += static_cast<char>(c);
    } else {
      text += "\\x";
      text += kDigits[c >> 4];
      text += kDigits[c & 15];
    }
  }
  return text += '"';
}

bool is_text(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    const auto c = static_cast<unsigned char>(byte);
    if (c < 0x20 || c >= 0x7f) return false;
  }
  return true;
}

Status invalid(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

Status another_protocol(std::span<const std::byte> bytes) {
  return invalid("the peer does not speak the rgpu protocol (got " + quoted(bytes.first(8)) + ")");
}

Status over_limit(const char* what, uint64_t value, uint64_t limit) {
  return invalid(std::string("frame header: ") + what + " " + std::to_string(value) +
                 " is over the limit of " + std::to_string(limit));
}

// What only the kind decides. The receiver would find most of it later; here it costs nothing and
// the message is clearer.
Status check_kind(const FrameHeader& header) {
  const auto kind = static_cast<FrameKind>(header.kind);
  const bool may_carry_payload = kind == FrameKind::kBatch || kind == FrameKind::kReply;
  if (kind == FrameKind::kAck && header.body_size_bytes != 0) {
    return invalid("frame header: an acknowledgement has no body");
  }
  if (!may_carry_payload && header.segment_count != 0) {
    return invalid("frame header: kind " + std::to_string(header.kind) + " carries no payload");
  }
  if (header.segment_count == 0 && header.payload_size_bytes != 0) {
    return invalid("frame header: payload bytes without a payload segment");
  }
  return {};
}

}  // namespace

Result<Preamble> parse_preamble(std::span<const std::byte, sizeof(Preamble)> bytes) {
  Preamble preamble;
  std::memcpy(&preamble, bytes.data(), sizeof(preamble));
  if (preamble.magic != kMagic) return another_protocol(bytes);
  if (preamble.protocol_version != kProtocolVersion) {
    return invalid("the peer speaks rgpu protocol version " +
                   std::to_string(preamble.protocol_version) + ", this side version " +
                   std::to_string(kProtocolVersion));
  }
  if (preamble.reserved0 != 0 || preamble.reserved1 != 0) {
    return invalid("preamble: a reserved field is set");
  }
  return preamble;
}

Result<FrameHeader> parse_frame_header(std::span<const std::byte, sizeof(FrameHeader)> bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  // Four printable bytes read as a size are 512 MiB or more, so no true frame looks like text.
  if (header.body_size_bytes > limits::kBodySizeBytesMax && is_text(bytes.first(4))) {
    return another_protocol(bytes);
  }
  if (header.kind < static_cast<uint16_t>(FrameKind::kHello) ||
      header.kind > static_cast<uint16_t>(FrameKind::kGoodbye)) {
    return invalid("frame header: unknown kind " + std::to_string(header.kind) +
                   "; does the peer speak the rgpu protocol? (got " + quoted(bytes.first(8)) + ")");
  }
  if (header.reserved != 0) return invalid("frame header: a reserved field is set");
  if (header.body_size_bytes > limits::kBodySizeBytesMax) {
    return over_limit("body size in bytes", header.body_size_bytes, limits::kBodySizeBytesMax);
  }
  if (header.stream >= limits::kStreamsMax) {
    return over_limit("stream", header.stream, limits::kStreamsMax - 1);
  }
  if (header.segment_count > limits::kSegmentsMax) {
    return over_limit("segment count", header.segment_count, limits::kSegmentsMax);
  }
  if (header.payload_size_bytes > limits::kPayloadSizeBytesMax) {
    return over_limit("payload size in bytes", header.payload_size_bytes,
                      limits::kPayloadSizeBytesMax);
  }
  RGPU_RETURN_IF_ERROR(check_kind(header));
  return header;
}

std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble) noexcept {
  return std::bit_cast<std::array<std::byte, sizeof(Preamble)>>(preamble);
}

std::array<std::byte, sizeof(FrameHeader)> to_bytes(const FrameHeader& header) noexcept {
  return std::bit_cast<std::array<std::byte, sizeof(FrameHeader)>>(header);
}

}  // namespace rgpu::wire
