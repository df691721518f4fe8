#include "server/crash_report.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "wire/frame.h"
#include "wire/messages.h"

namespace rgpu::server::crash_report {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t kMessageSizeBytes = 512;
constexpr size_t kStackSizeBytes = 64u << 10;

// All the handler reads. The message within `frame` is a FlatBuffers string: its length as a
// uint32, the characters, a zero.
struct State {
  int socket = -1;
  std::vector<std::byte> frame;
  size_t message_at = 0;
  std::atomic<bool> writing = false;
  std::atomic<bool> crashed = false;
};
State state;

// The stack a thread's handlers run on, for as long as the thread runs.
class ThreadStack {
 public:
  ThreadStack() : bytes_(std::make_unique<std::byte[]>(kStackSizeBytes)) {
    stack_t stack{};
    stack.ss_sp = bytes_.get();
    stack.ss_size = kStackSizeBytes;
    sigaltstack(&stack, nullptr);
  }
  ~ThreadStack() {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  ThreadStack(const ThreadStack&) = delete;
  ThreadStack& operator=(const ThreadStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> bytes_;
};

const char* signal_name(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "SIGABRT";
  }
}

void sleep_ms(long milliseconds) noexcept {
  timespec duration{0, milliseconds * 1'000'000};
  nanosleep(&duration, nullptr);
}

// Writes the message over the place held for it. No allocation, no locale, no stdio.
void patch_message(int signal) noexcept {
  char* const text = reinterpret_cast<char*>(state.frame.data() + state.message_at);
  size_t length = 0;
  const auto append = [&](const char* part) {
    for (; *part != '\0' && length < kMessageSizeBytes; ++part) text[length++] = *part;
  };
  const char* op = thread_op != nullptr ? thread_op : last_op.load(std::memory_order_relaxed);
  if (op != nullptr) {
    append("the op ");
    append(op);
    append(" ended the worker process (");
  } else {
    append("the worker process ended (");
  }
  append(signal_name(signal));
  append("); this session and its tensors are lost");
  text[length] = '\0';
  const auto size_bytes = static_cast<uint32_t>(length);
  std::memcpy(text - sizeof size_bytes, &size_bytes, sizeof size_bytes);
}

void send_frame() noexcept {
  const std::byte* at = state.frame.data();
  size_t left = state.frame.size();
  for (int tries = 0; left > 0 && tries < 100; ++tries) {
    const ssize_t sent = send(state.socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += sent;
      left -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      pollfd writable{state.socket, POLLOUT, 0};
      poll(&writable, 1, 10);
    } else {
      return;
    }
  }
}

// Bytes left unread at exit would make the kernel send a reset, which may overtake the message.
void linger() noexcept {
  shutdown(state.socket, SHUT_WR);
  std::array<char, 4096> discarded;
  for (int tries = 0; tries < 100; ++tries) {
    pollfd readable{state.socket, POLLIN, 0};
    if (poll(&readable, 1, 10) <= 0) continue;
    const ssize_t received = recv(state.socket, discarded.data(), discarded.size(), MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

void handle_crash(int signal) noexcept {
  if (!state.crashed.exchange(true)) {
    // The network thread goes on and finishes its frame, unless it is the one that crashed.
    for (int tries = 0; state.writing && tries < 200; ++tries) sleep_ms(1);
    if (!state.writing) {
      patch_message(signal);
      send_frame();
      linger();
    }
  } else {
    for (;;) sleep_ms(100);  // Another thread reports, and ends the process.
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void install(int socket) {
  const std::string placeholder(kMessageSizeBytes, '#');
  const std::vector<std::byte> body = wire::encode(wire::Goodbye{Code::kDisconnected, placeholder});
  const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
  const size_t found = text.find(placeholder);
  RGPU_CHECK(found != std::string_view::npos);
  uint32_t length = 0;
  std::memcpy(&length, body.data() + found - sizeof length, sizeof length);
  RGPU_CHECK(length == kMessageSizeBytes && body[found + length] == std::byte{0});

  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kGoodbye);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  const auto header_bytes = wire::to_bytes(header);
  state.socket = socket;
  state.frame.assign(header_bytes.begin(), header_bytes.end());
  state.frame.insert(state.frame.end(), body.begin(), body.end());
  state.message_at = header_bytes.size() + found;

  struct sigaction action{};
  action.sa_handler = &handle_crash;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

bool begin_frame() noexcept {
  state.writing = true;
  if (!state.crashed) return true;
  state.writing = false;
  return false;
}

void end_frame() noexcept { state.writing = false; }

void let_crash_end_process() noexcept {
  while (state.crashed) sleep_ms(100);
}

void use_thread_stack() {
  stack_t present{};
  sigaltstack(nullptr, &present);
  if ((present.ss_flags & SS_DISABLE) == 0) return;  // Sanitizers bring one of their own.
  thread_local ThreadStack stack;
}

}  // namespace rgpu::server::crash_report
