#include "wire/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "wire/limits.h"

namespace rgpu::wire {
namespace {

std::array<std::byte, 32> bytes_from(std::string_view text) {
  std::array<std::byte, 32> bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  return bytes;
}

FrameHeader header_of(FrameKind kind) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.body_size_bytes = kind == FrameKind::kAck ? 0 : 64;
  return header;
}

std::string error_of(const FrameHeader& header) {
  const auto parsed = parse_frame_header(to_bytes(header));
  if (parsed) return "";
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  return parsed.error().message();
}

TEST(Preamble, RoundTrips) {
  Preamble preamble;
  preamble.routing_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  const auto parsed = parse_preamble(to_bytes(preamble));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->routing_id, preamble.routing_id);
  EXPECT_EQ(parsed->protocol_version, kProtocolVersion);
}

TEST(Preamble, HasTheseBytes) {
  Preamble preamble;
  preamble.routing_id[0] = 0xab;
  const auto bytes = to_bytes(preamble);
  const auto expected = bytes_from(std::string_view("RGPU\r\n\x1a\n\x01\0\0\0\0\0\0\0\xab", 17));
  EXPECT_EQ(bytes, expected);
}

TEST(Preamble, OfAnotherVersionNamesBothVersions) {
  Preamble preamble;
  preamble.protocol_version = 7;
  const auto parsed = parse_preamble(to_bytes(preamble));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(parsed.error().message(),
            "the peer speaks rgpu protocol version 7, this side version 1");
}

TEST(Preamble, OfAnotherProtocolShowsWhatCame) {
  const auto parsed = parse_preamble(bytes_from("GET / HTTP/1.1\r\nHost: x"));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message(),
            "the peer does not speak the rgpu protocol (got \"GET / HT\")");
}

TEST(Preamble, EveryByteOfTheMagicAndOfTheReservedFieldsCounts) {
  for (size_t i = 0; i < 16; ++i) {
    auto bytes = to_bytes(Preamble{});
    bytes[i] ^= std::byte{0x40};
    EXPECT_FALSE(parse_preamble(bytes)) << i;
  }
}

TEST(FrameHeader, RoundTrips) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.stream = 5;
  header.segment_count = 2;
  header.payload_size_bytes = uint64_t{1} << 32;
  header.sequence = 0x0102030405060708;
  const auto parsed = parse_frame_header(to_bytes(header));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(to_bytes(*parsed), to_bytes(header));
}

TEST(FrameHeader, HasTheseBytes) {
  FrameHeader header;
  header.body_size_bytes = 0x01020304;
  header.kind = 0x0506;
  header.reserved = 0x0708;
  header.stream = 0x090a0b0c;
  header.segment_count = 0x0d0e0f10;
  header.payload_size_bytes = 0x1112131415161718;
  header.sequence = 0x191a1b1c1d1e1f20;
  EXPECT_EQ(to_bytes(header),
            bytes_from("\x04\x03\x02\x01\x06\x05\x08\x07\x0c\x0b\x0a\x09\x10\x0f\x0e\x0d"
                       "\x18\x17\x16\x15\x14\x13\x12\x11\x20\x1f\x1e\x1d\x1c\x1b\x1a\x19"));
}

TEST(FrameHeader, KindsAreOneToSix) {
  for (uint16_t kind = 1; kind <= 6; ++kind) {
    EXPECT_EQ(error_of(header_of(static_cast<FrameKind>(kind))), "") << kind;
  }
  EXPECT_NE(error_of(header_of(static_cast<FrameKind>(0))), "");
  EXPECT_NE(error_of(header_of(static_cast<FrameKind>(7))), "");
  EXPECT_NE(error_of(header_of(static_cast<FrameKind>(0x0101))), "");
}

TEST(FrameHeader, ReservedFieldMustBeZero) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.reserved = 1;
  EXPECT_EQ(error_of(header), "frame header: a reserved field is set");
}

TEST(FrameHeader, BodySizeHasALimit) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.body_size_bytes = limits::kBodySizeBytesMax;
  EXPECT_EQ(error_of(header), "");
  header.body_size_bytes += 1;
  EXPECT_EQ(error_of(header),
            "frame header: body size in bytes 16777217 is over the limit of 16777216");
}

TEST(FrameHeader, StreamHasALimit) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.stream = limits::kStreamsMax - 1;
  EXPECT_EQ(error_of(header), "");
  header.stream += 1;
  EXPECT_EQ(error_of(header), "frame header: stream 8192 is over the limit of 8191");
}

TEST(FrameHeader, SegmentCountHasALimit) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.segment_count = limits::kSegmentsMax;
  EXPECT_EQ(error_of(header), "");
  header.segment_count += 1;
  EXPECT_EQ(error_of(header), "frame header: segment count 4097 is over the limit of 4096");
}

TEST(FrameHeader, PayloadSizeHasALimit) {
  FrameHeader header = header_of(FrameKind::kReply);
  header.segment_count = 1;
  header.payload_size_bytes = limits::kPayloadSizeBytesMax;
  EXPECT_EQ(error_of(header), "");
  header.payload_size_bytes += 1;
  EXPECT_EQ(error_of(header),
            "frame header: payload size in bytes 4294967297 is over the limit of 4294967296");
}

TEST(FrameHeader, PayloadNeedsASegment) {
  FrameHeader header = header_of(FrameKind::kBatch);
  header.payload_size_bytes = 1;
  EXPECT_EQ(error_of(header), "frame header: payload bytes without a payload segment");
}

TEST(FrameHeader, OnlyBatchesAndRepliesCarryPayload) {
  for (const auto kind :
       {FrameKind::kHello, FrameKind::kHelloReply, FrameKind::kAck, FrameKind::kGoodbye}) {
    FrameHeader header = header_of(kind);
    header.segment_count = 1;
    EXPECT_NE(error_of(header), "") << header.kind;
  }
}

TEST(FrameHeader, AnAcknowledgementHasNoBody) {
  FrameHeader header = header_of(FrameKind::kAck);
  header.body_size_bytes = 8;
  EXPECT_EQ(error_of(header), "frame header: an acknowledgement has no body");
}

TEST(FrameHeader, TextOfAnotherProtocolIsShown) {
  const auto message = [](std::string_view text) {
    return parse_frame_header(bytes_from(text)).error().message();
  };
  EXPECT_EQ(message("HTTP/1.1 400 Bad Request\r\n"),
            "the peer does not speak the rgpu protocol (got \"HTTP/1.1\")");
  EXPECT_EQ(message("SSH-2.0-OpenSSH_9.2"),
            "the peer does not speak the rgpu protocol (got \"SSH-2.0-\")");
  EXPECT_EQ(message("RGPU\r\n\x1a\n"),
            "the peer does not speak the rgpu protocol (got \"RGPU\\r\\n\\x1a\\n\")");
  EXPECT_EQ(message("say \"\\\"!"),
            "the peer does not speak the rgpu protocol (got \"say \\\"\\\\\\\"!\")");
}

TEST(FrameHeader, BinaryOfAnotherProtocolIsShownEscaped) {
  // A TLS alert: its first bytes pass for a body size, its next for no kind we know.
  const auto bytes = bytes_from(std::string_view("\x15\x03\x01\x00\x02\x02\x28", 7));
  EXPECT_EQ(parse_frame_header(bytes).error().message(),
            "frame header: unknown kind 514; does the peer speak the rgpu protocol? "
            "(got \"\\x15\\x03\\x01\\x00\\x02\\x02(\\x00\")");
}

}  // namespace
}  // namespace rgpu::wire
