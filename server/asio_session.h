// AsioSession: a session's coroutines on Boost.Asio. Compiled twice, see server/CMakeLists.txt.
//
// Asio chooses between epoll and io_uring when it is compiled. So that one program can hold both,
// the io_uring object is compiled with -Dasio=asio_io_uring, which renames boost::asio as a whole,
// and each object has this class in a namespace of its own, RGPU_IO: `epoll` or `io_uring`.
// tests/server/session_symbols.cmake holds the objects to it.
//
// Threading: as session.h says. The coroutines and all members are the network thread's; complete()
//            and failed() reach it through the outbox and by posting.
// Lifetime:  the coroutines hold the session; buffers given to the kernel live in it or in a frame
//            being written until their completion came.
// Errors:    as session.h says.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "server/input_buffer.h"
#include "server/outbox.h"
#include "server/session.h"
#include "wire/frame.h"

namespace rgpu::server::RGPU_IO {

namespace asio = boost::asio;

// Wakes one coroutine; set before the wait, it ends the wait at once. Costs no timer and no system
// call.
class Event {
 public:
  explicit Event(asio::io_context& io) : channel_(io, 1) {}
  void set() { channel_.try_send(boost::system::error_code()); }
  asio::awaitable<void> wait();

 private:
  asio::experimental::channel<void(boost::system::error_code)> channel_;
};

class AsioSession final : public Session, public std::enable_shared_from_this<AsioSession> {
 public:
  explicit AsioSession(const SessionParts& parts);
  ~AsioSession() override;
  void run(Engine& engine) override;
  void close() override;

  void complete(std::span<OutgoingReply> replies, uint64_t applied_sequence) override;
  void failed(Status reason) override;

 private:
  enum class Farewell : uint8_t {
    kNone,     // The client is done or gone.
    kLinger,   // All was said: wait until it was read.
    kGoodbye,  // Tell the client the reason first.
  };

  static asio::awaitable<void> read_loop(std::shared_ptr<AsioSession> self);
  static asio::awaitable<void> write_loop(std::shared_ptr<AsioSession> self);
  // Over io_uring a cancelled read of the signals may never come back, so it holds no session: its
  // frame goes with io_.
  static asio::awaitable<void> signal_loop(AsioSession& self);
  void spawn(asio::awaitable<void> task);

  asio::awaitable<Status> handshake();
  asio::awaitable<Status> read_frames();
  asio::awaitable<Status> read_batch(wire::FrameHeader header);
  asio::awaitable<Status> read_goodbye(wire::FrameHeader header);
  asio::awaitable<Result<wire::FrameHeader>> read_header();
  asio::awaitable<Result<Body>> read_body(wire::FrameHeader header);
  asio::awaitable<Status> read_payload(std::span<std::byte> target);
  asio::awaitable<Status> hold(size_t size_bytes);  // Until input_ holds as many.
  asio::awaitable<void> discard_input();
  asio::awaitable<Status> write_frames(std::vector<OutgoingFrame>& frames);

  [[nodiscard]] Status check_hello(const wire::Hello& hello);
  void send_hello_reply(const Status& verdict);
  // The first call ends the session; later ones do nothing.
  void end(Status reason, Farewell farewell);

  const SessionId id_;
  BatchQueue& queue_;
  Outbox outbox_;
  Engine* engine_ = nullptr;

  asio::io_context io_{1};
  asio::ip::tcp::socket socket_{io_};
  asio::posix::stream_descriptor signals_{io_};
  asio::steady_timer deadline_{io_};  // Of the handshake, later of the end.
  Event room_{io_};                   // The queue has room.
  Event outgoing_{io_};               // There is something to write.

  std::chrono::milliseconds linger_deadline_;
  InputBuffer input_;           // Bytes read ahead.
  uint64_t last_received_ = 0;  // Sequence of the last batch read.
  std::optional<OutgoingFrame> hello_reply_;
  bool ending_ = false;
  Farewell farewell_ = Farewell::kNone;
  bool refused_ = false;  // The HelloReply said no.
  bool reader_done_ = false;
  bool writer_done_ = false;
  Status end_reason_;
};

}  // namespace rgpu::server::RGPU_IO
