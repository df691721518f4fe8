// Connection: a session's socket, its I/O thread and the coroutines that run there.
//
// The write loop asks the flush policy what to do and sends batches; the read loop takes
// acknowledgements and replies; either may find the session lost. While records come, the I/O
// thread stays awake and looks at the rings at short intervals; only when it has parked does an
// append cost a system call, one for the whole burst.
//
// Threading: start(), wake() and close() by any thread but the I/O thread, on which all else runs.
// Lifetime:  the I/O thread and every coroutine hold a reference until they end.
// Errors:    none are returned: SessionCore::lose() has the reason.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/drain.h"
#include "runtime/frame_reader.h"
#include "runtime/session_core.h"

namespace rgpu {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `io` and `socket` are connect_tcp()'s.
  Connection(std::shared_ptr<SessionCore> core, std::unique_ptr<boost::asio::io_context> io,
             boost::asio::ip::tcp::socket socket);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  // The write loop looks at the queue soon. One system call, none while an earlier one is pending.
  void wake();
  // Ends the session: for a producer that saw no progress.
  void lose(const Status& reason);
  // Sends what is pending and a goodbye, within `timeout`; joins. Idempotent.
  void close(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  using ConnectionPtr = std::shared_ptr<Connection>;

  // What the write loop does next.
  struct Step {
    enum class Kind : uint8_t { kSend, kLookAgain, kPause, kFinish };
    Kind kind = Kind::kLookAgain;
    uint32_t records_max = 0;
    std::optional<Clock::duration> pause;  // None: until somebody calls look().
  };

  static boost::asio::awaitable<void> write_loop(ConnectionPtr self);
  static boost::asio::awaitable<void> read_loop(ConnectionPtr self);
  static boost::asio::awaitable<void> handshake_deadline(ConnectionPtr self);
  static boost::asio::awaitable<void> close_deadline(ConnectionPtr self);

  void run();
  void spawn(boost::asio::awaitable<void> task);
  void look();  // Ends the write loop's pause.
  void shut();  // Every coroutine ends soon.
  void lose_here(const Status& reason);

  // Writing.
  [[nodiscard]] Step plan();
  [[nodiscard]] Step plan_idle(Clock::time_point now);
  [[nodiscard]] Step doze(const FlushDecision& decision, const FlushState& state);
  [[nodiscard]] Step park(std::optional<Clock::duration> pause);
  [[nodiscard]] boost::asio::awaitable<void> pause(std::optional<Clock::duration> duration);
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> send_hello();
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> send_batch(uint32_t records_max);
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> send_goodbye();
  // `lead_size_bytes`: how much of what is gathered comes before the tensor bytes.
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> write_gathered(
      size_t lead_size_bytes);
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> write_payloads(
      size_t lead_size_bytes);
  [[nodiscard]] boost::asio::awaitable<boost::system::error_code> write_feed(UploadFeed& feed);

  // Reading.
  [[nodiscard]] boost::asio::awaitable<Status> read_frames();
  [[nodiscard]] boost::asio::awaitable<Status> on_hello_reply(wire::FrameHeader header);
  [[nodiscard]] boost::asio::awaitable<Status> on_reply(wire::FrameHeader header);
  [[nodiscard]] boost::asio::awaitable<Status> on_goodbye(wire::FrameHeader header);
  [[nodiscard]] Status on_applied(uint64_t sequence);
  // Before the handshake: what speaks another protocol, which may have sent less than a frame
  // header.
  [[nodiscard]] Status check_first_bytes() const;
  [[nodiscard]] Status explain_read_error(const Status& error) const;
  [[nodiscard]] std::string server_name() const;

  const std::shared_ptr<SessionCore> core_;
  const std::unique_ptr<boost::asio::io_context> io_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer pause_timer_;
  boost::asio::steady_timer handshake_timer_;
  boost::asio::steady_timer close_timer_;
  std::atomic<bool> wake_posted_{false};
  std::mutex close_mutex_;
  std::thread thread_;  // Guarded by close_mutex_.

  // The I/O thread's own.
  FrameReader reader_;
  Drain drain_;
  OutgoingBatch batch_;
  std::vector<boost::asio::const_buffer> gather_;  // What write_gathered() sends.
  std::shared_ptr<FlushPolicy> policy_;
  uint32_t policy_version_ = 0;
  uint64_t batches_sent_ = 0;
  uint64_t batches_applied_ = 0;
  bool greeted_ = false;  // The HelloReply came.
  bool looking_ = false;  // look() was called since the last pause.
  bool parked_ = false;   // Or dozes: the queue is to be told when that ends.
  bool closing_ = false;
  bool shut_ = false;
  std::optional<Clock::time_point> pending_since_;  // When records were first seen waiting.
  std::optional<Clock::time_point> frees_since_;    // The same for frees, while no records wait.
  std::optional<Clock::time_point> idle_since_;
  Clock::duration poll_interval_{0};
};

}  // namespace rgpu
