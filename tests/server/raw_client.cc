#include "tests/server/raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace rgpu::server::testing {
namespace {

constexpr size_t kSmallSegmentSizeBytes = 64u << 10;
constexpr int kDeadlineMs = 20'000;  // Generous: the machine may be busy.

void wait_readable(int descriptor, const char* what) {
  pollfd readable{descriptor, POLLIN, 0};
  if (poll(&readable, 1, kDeadlineMs) <= 0) throw std::runtime_error(std::string("no ") + what);
}

}  // namespace

RawClient::RawClient(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("connect");
  }
  const int no_delay = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
}

RawClient::~RawClient() { close(socket_); }

void RawClient::send_bytes(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // The server ended the connection; receive() tells why.
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

void RawClient::send_text(const std::string& text) { send_bytes(std::as_bytes(std::span(text))); }

void RawClient::send_frame(wire::FrameKind kind, uint64_t sequence,
                           std::span<const std::byte> body) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  header.sequence = sequence;
  send_bytes(wire::to_bytes(header));
  send_bytes(body);
}

wire::Hello make_hello() {
  wire::Hello hello;
  hello.protocol_version = wire::kProtocolVersion;
  hello.client_version = "test";
  hello.torch_version = "2.13.0";
  return hello;
}

wire::HelloReply RawClient::greet() { return greet(make_hello()); }

wire::HelloReply RawClient::greet(const wire::Hello& hello) {
  send_bytes(wire::to_bytes(wire::Preamble{}));
  send_frame(wire::FrameKind::kHello, 0, wire::encode(hello));
  const std::optional<Frame> frame = receive();
  if (!frame || frame->header.kind != static_cast<uint16_t>(wire::FrameKind::kHelloReply)) {
    throw std::runtime_error("no HelloReply");
  }
  return wire::decode_hello_reply(frame->body).value();
}

void RawClient::send_batch(const BatchBuilder::Built& batch) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kBatch);
  header.body_size_bytes = static_cast<uint32_t>(batch.body.size());
  header.segment_count = static_cast<uint32_t>(batch.segments.size());
  for (const auto& segment : batch.segments) header.payload_size_bytes += segment.size();
  header.sequence = next_sequence++;
  // In one write, as the client does it; large payloads by themselves.
  std::vector<std::byte> frame;
  const auto header_bytes = wire::to_bytes(header);
  frame.insert(frame.end(), header_bytes.begin(), header_bytes.end());
  frame.insert(frame.end(), batch.body.begin(), batch.body.end());
  for (const auto& segment : batch.segments) {
    if (segment.size() > kSmallSegmentSizeBytes) {
      send_bytes(frame);
      frame.clear();
      send_bytes(segment);
    } else {
      frame.insert(frame.end(), segment.begin(), segment.end());
    }
  }
  send_bytes(frame);
}

void RawClient::shut_down_sending() { shutdown(socket_, SHUT_WR); }

bool RawClient::receive_bytes(std::span<std::byte> target) {
  while (!target.empty()) {
    wait_readable(socket_, "answer in time");
    const ssize_t received = recv(socket_, target.data(), target.size(), 0);
    if (received < 0) throw std::runtime_error(std::string("recv: ") + std::strerror(errno));
    if (received == 0) return false;
    target = target.subspan(static_cast<size_t>(received));
  }
  return true;
}

std::optional<Frame> RawClient::receive() {
  std::array<std::byte, sizeof(wire::FrameHeader)> header;
  if (!receive_bytes(header)) return std::nullopt;
  Frame frame;
  frame.header = wire::parse_frame_header(header).value();
  frame.body.resize(frame.header.body_size_bytes);
  frame.payload.resize(frame.header.payload_size_bytes);
  if (!receive_bytes(frame.body) || !receive_bytes(frame.payload)) return std::nullopt;
  return frame;
}

wire::Reply RawClient::receive_reply(std::vector<std::byte>* payload) {
  while (const std::optional<Frame> frame = receive()) {
    if (frame->header.kind == static_cast<uint16_t>(wire::FrameKind::kAck)) continue;
    if (frame->header.kind == static_cast<uint16_t>(wire::FrameKind::kGoodbye)) {
      throw std::runtime_error("goodbye: " + wire::decode_goodbye(frame->body).value().message);
    }
    if (payload != nullptr) *payload = frame->payload;
    return wire::decode_reply(frame->body).value();
  }
  throw std::runtime_error("the connection ended before the reply");
}

wire::Goodbye RawClient::receive_goodbye() {
  while (const std::optional<Frame> frame = receive()) {
    if (frame->header.kind != static_cast<uint16_t>(wire::FrameKind::kGoodbye)) continue;
    EXPECT_FALSE(receive().has_value());
    return wire::decode_goodbye(frame->body).value();
  }
  throw std::runtime_error("the connection ended without a goodbye");
}

}  // namespace rgpu::server::testing
