// Session: the worker's network side. Reads frames, hands batches on, writes acks and replies.
//
// With session.cc this is all of a worker that names Asio types.
//
// Threading: run() is the network thread; the coroutines and every member without a comment are its
//            own. complete() and failed() may be called from any thread.
// Lifetime:  the coroutines hold the session; buffers given to the kernel live in it or in a frame
//            of the outbox until their completion came.
// Errors:    whatever a correct client cannot have sent ends the session with a Goodbye that says
//            why, followed by a lingering close so that the client gets to read it.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/batch_queue.h"
#include "server/body_pool.h"
#include "server/engine.h"
#include "server/work_clock.h"
#include "wire/frame.h"

namespace rgpu::server {

namespace asio = boost::asio;

using SessionId = std::array<std::byte, 16>;
[[nodiscard]] std::string to_hex(const SessionId& id);

class Session final : public EngineSink, public std::enable_shared_from_this<Session> {
 public:
  // Owns `socket`, whose preamble was read. SIGTERM and SIGINT are blocked in the caller.
  Session(int socket, SessionId id, BatchQueue& queue, BodyPool& bodies, WorkClock& clock);
  ~Session() override;
  // Returns when the session is over and its last bytes are out or given up.
  void run(Engine& engine);

  void complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) override;
  void failed(Status reason) override;

 private:
  enum class Farewell : uint8_t {
    kNone,     // The client is done or gone.
    kLinger,   // All was said: wait until it was read.
    kGoodbye,  // Tell the client the reason first.
  };
  // One frame on its way out. `bytes` is the header and the body.
  struct OutgoingFrame {
    std::vector<std::byte> bytes;
    OutgoingReply reply;
  };

  static asio::awaitable<void> read_loop(std::shared_ptr<Session> self);
  static asio::awaitable<void> write_loop(std::shared_ptr<Session> self);
  static asio::awaitable<void> signal_loop(std::shared_ptr<Session> self);
  void spawn(asio::awaitable<void> task);

  asio::awaitable<Status> handshake();
  asio::awaitable<Status> read_frames();
  asio::awaitable<Status> read_batch(wire::FrameHeader header);
  asio::awaitable<Status> read_goodbye(wire::FrameHeader header);
  asio::awaitable<Result<wire::FrameHeader>> read_header();
  asio::awaitable<Status> read_exactly(std::span<std::byte> target);
  asio::awaitable<Status> wait_for_room();
  asio::awaitable<void> discard_input();
  asio::awaitable<Status> write_goodbye();
  asio::awaitable<Status> write_frames(std::vector<OutgoingFrame>& frames);

  [[nodiscard]] Status check_hello(const wire::Hello& hello);
  void send_hello_reply(const Status& verdict);
  void take_outgoing(std::vector<OutgoingFrame>& frames);
  void wake_writer();
  // The first call ends the session; later ones do nothing.
  void end(Status reason, Farewell farewell);

  const SessionId id_;
  BatchQueue& queue_;
  BodyPool& bodies_;
  WorkClock& clock_;
  Engine* engine_ = nullptr;

  asio::io_context io_{1};
  asio::ip::tcp::socket socket_{io_};
  asio::posix::stream_descriptor signals_{io_};
  asio::steady_timer deadline_{io_};  // Of the handshake, later of the end.
  asio::steady_timer room_{io_};      // Cancelled when the queue has room.
  asio::steady_timer outgoing_{io_};  // Cancelled when there is something to write.

  std::chrono::milliseconds linger_deadline_;
  std::vector<std::byte> input_;  // Bytes read ahead are [input_begin_, input_end_).
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  uint64_t last_received_ = 0;  // Sequence of the last batch read.
  uint64_t last_acked_ = 0;
  bool ending_ = false;
  Farewell farewell_ = Farewell::kNone;
  bool refused_ = false;  // The HelloReply said no.
  bool reader_done_ = false;
  bool writer_done_ = false;
  Status end_reason_;

  std::mutex outbox_mutex_;  // Guards what follows.
  std::condition_variable outbox_room_;
  std::vector<OutgoingFrame> outbox_;
  size_t outbox_size_bytes_ = 0;
  uint64_t applied_ = 0;
  bool wake_posted_ = false;
  bool outbox_closed_ = false;
};

}  // namespace rgpu::server
