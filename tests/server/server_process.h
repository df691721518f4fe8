// ServerProcess: the real rgpu-opserver as a child process. RawClient: a blocking connection to it
// that can also misbehave.
//
// Every wait has a deadline; what does not come in time fails the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/server/batch_builder.h"
#include "wire/frame.h"
#include "wire/messages.h"

namespace rgpu::server::testing {

class ServerProcess {
 public:
  explicit ServerProcess(std::vector<std::string> options = {});
  ~ServerProcess();  // Kills it if it still runs.
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] const std::string& first_line() const noexcept { return first_line_; }
  [[nodiscard]] std::vector<pid_t> workers() const;
  // Sends SIGTERM; the exit status, or nothing when it did not end within 3 s.
  [[nodiscard]] std::optional<int> terminate();

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
  std::string first_line_;
};

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
