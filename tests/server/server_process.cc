#include "tests/server/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace rgpu::server::testing {
namespace {

using namespace std::chrono_literals;
constexpr int kDeadlineMs = 20'000;  // Generous: the machine may be busy.

void wait_readable(int descriptor, const char* what) {
  pollfd readable{descriptor, POLLIN, 0};
  if (poll(&readable, 1, kDeadlineMs) <= 0) throw std::runtime_error(std::string("no ") + what);
}

std::string read_line(int descriptor) {
  std::string line;
  for (char byte = 0; byte != '\n';) {
    wait_readable(descriptor, "first line");
    if (read(descriptor, &byte, 1) != 1) throw std::runtime_error("no first line: " + line);
    line += byte;
  }
  return line;
}

}  // namespace

ServerProcess::ServerProcess(std::vector<std::string> options) {
  std::array<int, 2> output{};
  if (pipe2(output.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  std::vector<std::string> words = {RGPU_OPSERVER, "--port",    "0", "--device",
                                    "cpu",         "--threads", "1"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  if (posix_spawn(&pid_, RGPU_OPSERVER, &actions, nullptr, arguments.data(), environ) != 0) {
    throw std::runtime_error("cannot start " RGPU_OPSERVER);
  }
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  first_line_ = read_line(output[0]);
  close(output[0]);
  const size_t colon = first_line_.find(':');
  port_ = static_cast<uint16_t>(std::stoi(first_line_.substr(colon + 1)));
}

ServerProcess::~ServerProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<pid_t> ServerProcess::workers() const {
  const std::string task = std::to_string(pid_);
  std::ifstream file("/proc/" + task + "/task/" + task + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

std::optional<int> ServerProcess::terminate() {
  kill(pid_, SIGTERM);
  for (int tries = 0; tries < 300; ++tries) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  return std::nullopt;
}

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
  send_bytes(wire::to_bytes(header));
  send_bytes(batch.body);
  for (const auto& segment : batch.segments) send_bytes(segment);
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
