// Client: the process's session with its server, and how its failures become exceptions.
//
// Threading: any thread. The first use connects; sessions live until the process ends, so that a
//            raw reference taken from session() stays valid after a new one was connected.
// Errors:    c10::Error and its subclasses, the types PyTorch raises on the CPU: a lost session is
//            a RuntimeError that says why; a remote op's failure names op, arguments and line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace rgpu::backend {

// Notes each wait under the program line that waits.
class NotingObserver : public WaitObserver {
 public:
  void counted(std::chrono::nanoseconds waited) noexcept override;
};

// What the embedding program (the Python extension) knows and this library does not. All have
// defaults that do nothing; set once, before the first op.
struct HostHooks {
  // The id of the program line that issues the current op; 0: unknown. Called per op: ~20 ns.
  uint32_t (*location)() = [] { return 0U; };
  std::string (*describe_location)(uint32_t) = [](uint32_t) { return std::string(); };
  // Whether the exception says "not implemented for this backend" or "depends on data".
  bool (*is_unimplemented)(const std::exception_ptr&) = [](const std::exception_ptr&) {
    return false;
  };
  // This thread's observer; it may give up the interpreter's lock while the thread waits.
  WaitObserver& (*observer)() = []() -> WaitObserver& {
    static NotingObserver noting;
    return noting;
  };
  // While it lives, no compiler captures this thread's shape functions, and, where `warnings`, they
  // warn of nothing: the ops themselves do.
  std::shared_ptr<void> (*quiet)(bool warnings) = [](bool) -> std::shared_ptr<void> {
    return nullptr;
  };
  // Throws what the interpreter has pending (KeyboardInterrupt) after a wait was given up.
  void (*throw_interrupted)() = [] {};
  // The program's stack at this moment, for RGPU_DEBUG=1; lines that end in newlines.
  std::string (*stack)() = [] { return std::string(); };
};

// One program line's waits.
struct WaitSite {
  uint32_t location = 0;
  uint64_t count = 0;
  uint64_t wait_ns = 0;
};

class Client {
 public:
  [[nodiscard]] static Client& get() noexcept;
  static HostHooks& hooks() noexcept;

  // The current session; connects to RGPU_OPSERVER (127.0.0.1:9720) on the first use.
  [[nodiscard]] Session& session() {
    Session* session = current_.load(std::memory_order_acquire);
    return session != nullptr ? *session : connect_default();
  }
  [[nodiscard]] bool connected() const noexcept {
    return current_.load(std::memory_order_acquire) != nullptr;
  }
  // Counts sessions from 1; a storage belongs to the one it was made in.
  [[nodiscard]] uint32_t generation() const noexcept {
    return generation_.load(std::memory_order_acquire);
  }

  // RGPU_DEBUG=1, as it was when the first op asked: every op waits until it is done and raises its
  // own error, with the program's stack.
  [[nodiscard]] static bool debug() noexcept {
    static const bool on = is_debug_wanted();
    return on;
  }

  // A new session; tensors of the old one stay unusable. `address`: "host:port" or "".
  void connect(const std::string& address, double timeout_s);
  // What was issued since the last wait may have failed: such an error is told on stderr, if the
  // server says so within half a second.
  void close() noexcept;
  [[nodiscard]] static std::string default_address();

  void release(uint32_t generation, Handle handle) noexcept;

  // Held around template look-up, definition and the append that uses it. Only through an
  // IssueLock.
  [[nodiscard]] std::mutex& issue_mutex() noexcept { return issue_mutex_; }

  // A command on `stream`.
  void append(wire::Command command, uint32_t stream, std::span<const Handle> handles,
              std::span<const std::byte> immediates);
  // A command whose only immediate is a request that was just opened, sent soon. Does not wait.
  void ask(wire::Command command, uint32_t stream, std::span<const Handle> handles,
           uint64_t request);
  // Waits for the reply to a request and raises its error.
  wire::Reply wait(uint64_t request);
  void synchronize();
  void synchronize_stream(uint32_t stream);
  [[nodiscard]] wire::HelloReply server_info();
  [[nodiscard]] int device_count();  // Asks the server once.
  // What device_count() last said in this session; 1 where it did not. Asks nobody.
  [[nodiscard]] uint32_t known_device_count() const noexcept {
    return static_cast<uint32_t>(std::max(1, device_count_.load(std::memory_order_relaxed)));
  }
  // Every wait of SessionStats::waits, by program line.
  [[nodiscard]] std::vector<WaitSite> wait_sites();
  void note_wait(std::chrono::nanoseconds waited) noexcept;
  void reset_wait_sites();

  void set_flush_policy(const std::string& name);
  [[nodiscard]] std::string flush_policy();
  [[nodiscard]] SessionStats stats();

  void after_fork_in_child() noexcept;

 private:
  Client() = default;
  Session& connect_default();
  [[nodiscard]] std::string chosen_policy() const;
  void connect_locked(const std::string& address, double timeout_s);
  // One wait: notes its program line and raises its error.
  template <typename Wait>
  wire::Reply noted(Wait wait);
  [[nodiscard]] static bool is_debug_wanted() noexcept;
  void tell_unread_error(Session& session) noexcept;

  std::atomic<Session*> current_{nullptr};
  std::atomic<uint32_t> generation_{0};
  std::mutex connect_mutex_;
  std::mutex issue_mutex_;
  std::vector<std::shared_ptr<Session>> sessions_;
  std::string flush_policy_;
  std::mutex sites_mutex_;
  std::vector<WaitSite> sites_;
  std::atomic<uint64_t> records_waited_for_{0};  // Of the current session, about.
  std::atomic<int> device_count_{-1};
  std::atomic<bool> forked_{false};
};

// Holds Client::issue_mutex(). A thread that must wait for it gives up the interpreter's lock
// first: the holder may be waiting for room in a ring and need that lock to go on.
class IssueLock {
 public:
  enum class Start : uint8_t { kLocked, kUnlocked };
  explicit IssueLock(Start start = Start::kLocked)
      : lock_(Client::get().issue_mutex(), std::defer_lock) {
    if (start == Start::kLocked) this->lock();
  }
  void lock() {
    if (!lock_.try_lock()) [[unlikely]]
      wait();
  }
  void unlock() { lock_.unlock(); }

 private:
  void wait();
  std::unique_lock<std::mutex> lock_;
};

// Translation, once per rim. All throw unless the status is ok.
void raise_if_error(const Status& status);
// Of a reply that was polled: the session's end, or the error it carries.
void raise_if_failed(const Result<wire::Reply>& reply);
// The one integer that a reply to a command has. Throws when it has none.
[[nodiscard]] int64_t integer_of(const wire::Reply& reply);
[[noreturn]] void raise(const wire::RemoteError& error);

}  // namespace rgpu::backend
