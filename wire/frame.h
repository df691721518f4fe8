// Preamble and frame header: what stands before every FlatBuffers body.
//
//   connection := Preamble frame*                 (client; the server sends frames only)
//   frame      := FrameHeader body[body_size_bytes] payload[payload_size_bytes]
//
// All integers are little-endian. The body is a FlatBuffers table of the header's kind
// (messages.h, batch.h), or empty for kAck. The payload is the raw bytes of the body's segments,
// one after the other, without padding; it never passes through FlatBuffers.
//
// Threading: pure functions and plain values.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>

#include "wire/status.h"

namespace rgpu::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr std::array<char, 8> kMagic = {'R', 'G', 'P', 'U', '\r', '\n', '\x1a', '\n'};

// The first 32 bytes of a connection, in clear: no secret is in it.
struct Preamble {
  std::array<char, 8> magic = kMagic;
  uint16_t protocol_version = kProtocolVersion;
  uint16_t reserved0 = 0;
  uint32_t reserved1 = 0;
  std::array<uint8_t, 16> routing_id{};  // Random; zero: a new session, any worker.
};
static_assert(sizeof(Preamble) == 32 && std::is_trivially_copyable_v<Preamble>);

enum class FrameKind : uint16_t {
  kHello = 1,       // Client, first. sequence 0.
  kHelloReply = 2,  // Server, first. sequence 0.
  kBatch = 3,       // Client. sequence: 1, 2, 3, … without a gap.
  kAck = 4,         // Server. No body. sequence: the last batch that was applied.
  kReply = 5,       // Server. sequence: the last batch that was applied when it was made.
  kGoodbye = 6,     // Either, last. sequence: the last batch sent (client) or applied (server).
};

struct FrameHeader {
  uint32_t body_size_bytes = 0;
  uint16_t kind = 0;
  uint16_t reserved = 0;
  uint32_t stream = 0;         // Of the frame's first record; 0 where none applies.
  uint32_t segment_count = 0;  // Payload segments; the body gives their sizes.
  uint64_t payload_size_bytes = 0;
  uint64_t sequence = 0;
};
static_assert(sizeof(FrameHeader) == 32 && std::is_trivially_copyable_v<FrameHeader>);

// kInvalidArgument when it is not an rgpu preamble, or for another protocol version (both named).
[[nodiscard]] Result<Preamble> parse_preamble(std::span<const std::byte, sizeof(Preamble)> bytes);
// kInvalidArgument when the kind is unknown, a reserved field is set, or a size is over its limit.
// When the bytes are no frame at all (a server of another protocol) the message says so.
[[nodiscard]] Result<FrameHeader> parse_frame_header(
    std::span<const std::byte, sizeof(FrameHeader)> bytes);

[[nodiscard]] std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble) noexcept;
[[nodiscard]] std::array<std::byte, sizeof(FrameHeader)> to_bytes(
    const FrameHeader& header) noexcept;

}  // namespace rgpu::wire
