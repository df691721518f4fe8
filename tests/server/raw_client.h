// RawClient: a blocking connection to a server that can also misbehave.
//
// Every wait has a deadline; what does not come in time fails the test.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/server/batch_builder.h"
#include "wire/frame.h"
#include "wire/messages.h"

namespace rgpu::server::testing {

struct Frame {
  wire::FrameHeader header;
  std::vector<std::byte> body;
  std::vector<std::byte> payload;
};

class RawClient {
 public:
  explicit RawClient(uint16_t port);  // TCP only.
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send_bytes(std::span<const std::byte> bytes);
  void send_text(const std::string& text);
  void send_frame(wire::FrameKind kind, uint64_t sequence, std::span<const std::byte> body);
  // Preamble, Hello, and what the server answers.
  [[nodiscard]] wire::HelloReply greet(const wire::Hello& hello);
  [[nodiscard]] wire::HelloReply greet();
  void send_batch(const BatchBuilder::Built& batch);  // With the next sequence number.
  void shut_down_sending();

  // The next frame; nothing at the end of the connection.
  [[nodiscard]] std::optional<Frame> receive();
  [[nodiscard]] wire::Reply receive_reply(
      std::vector<std::byte>* payload = nullptr);  // Skips acks.
  [[nodiscard]] wire::Goodbye
  receive_goodbye();  // Skips everything else; then the end must follow.

  uint64_t next_sequence = 1;

 private:
  bool receive_bytes(std::span<std::byte> target);
  int socket_ = -1;
};

[[nodiscard]] wire::Hello make_hello();

}  // namespace rgpu::server::testing
