#include "runtime/connection.h"

#include <pthread.h>
#include <signal.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace rgpu {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

// Signals are for the program's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

Connection::Connection(std::shared_ptr<SessionCore> core, std::unique_ptr<asio::io_context> io,
                       asio::ip::tcp::socket socket)
    : core_(std::move(core)),
      io_(std::move(io)),
      socket_(std::move(socket)),
      pause_timer_(*io_),
      handshake_timer_(*io_),
      close_timer_(*io_),
      reader_(socket_, core_->counters),
      drain_(core_->queue, core_->options.batch_size_bytes_max),
      policy_(core_->queue.policy()) {}

void Connection::start() {
  error_code ignored;  // Of a socket that is dead already: the first read tells.
  socket_.non_blocking(true, ignored);
  const ConnectionPtr self = shared_from_this();
  spawn(write_loop(self));
  spawn(read_loop(self));
  spawn(handshake_deadline(self));
  const BlockedSignals blocked;  // A new thread inherits the mask.
  const std::lock_guard lock(close_mutex_);
  thread_ = std::thread([self] { self->run(); });
}

void Connection::spawn(asio::awaitable<void> task) {
  const auto ended = [self = shared_from_this()](const std::exception_ptr& thrown) {
    if (!thrown) return;
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      self->lose_here(Status(Code::kInternal, std::string("the client failed: ") + error.what()));
    }
  };
  asio::co_spawn(*io_, std::move(task), ended);
}

void Connection::run() {
#ifdef __linux__
  pthread_setname_np(pthread_self(), "rgpu-io");
#endif
  io_->run();
  // No coroutine is left. What nobody will send or receive any more is let go of.
  core_->replies.release_destinations();
  std::vector<Payload> unsent;
  core_->queue.take_uploads(unsent);
}

void Connection::look() {
  looking_ = true;
  pause_timer_.cancel();
}

// What is posted here holds no reference: it may come when the I/O thread has ended, and would then
// stay in the io_context, which this object owns.
void Connection::wake() {
  if (wake_posted_.exchange(true, std::memory_order_acq_rel)) return;
  core_->counters.wakeups.fetch_add(1, std::memory_order_relaxed);
  asio::post(*io_, [weak = weak_from_this()] {
    const ConnectionPtr self = weak.lock();
    if (!self) return;
    // An exchange, so that what the waking thread did before is seen in what follows.
    self->wake_posted_.exchange(false, std::memory_order_acq_rel);
    self->look();
  });
}

void Connection::shut() {
  shut_ = true;
  error_code ignored;
  socket_.close(ignored);
  handshake_timer_.cancel();
  close_timer_.cancel();
  look();
}

void Connection::lose_here(const Status& reason) {
  core_->lose(reason);
  if (!shut_) shut();
}

void Connection::lose(const Status& reason) {
  core_->lose(reason);
  asio::post(*io_, [weak = weak_from_this()] {
    const ConnectionPtr self = weak.lock();
    if (self && !self->shut_) self->shut();
  });
}

asio::awaitable<void> Connection::handshake_deadline(ConnectionPtr self) {
  const milliseconds timeout = self->core_->options.connect_timeout;
  self->handshake_timer_.expires_after(timeout);
  const auto [error] =
      co_await self->handshake_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  if (error || self->greeted_ || self->shut_) co_return;
  if (const Status foreign = self->check_first_bytes(); !foreign) {
    self->lose_here(foreign);
  } else {
    self->lose_here(Status(
        Code::kDisconnected,
        self->core_->peer.name() + " did not answer as an rgpu server within " + to_text(timeout)));
  }
}

asio::awaitable<void> Connection::close_deadline(ConnectionPtr self) {
  // Somebody may move the deadline, which ends the wait early.
  while (!self->shut_ && self->close_timer_.expiry() > Clock::now()) {
    co_await self->close_timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (!self->shut_) self->lose_here(Status(Code::kDisconnected, "the session was closed"));
}

void Connection::close(milliseconds timeout) {
  const bool on_io_thread = io_->get_executor().running_in_this_thread();
  const std::lock_guard lock(close_mutex_);
  if (!thread_.joinable()) return;
  asio::post(*io_, [weak = weak_from_this(), timeout] {
    const ConnectionPtr self = weak.lock();
    if (!self || self->shut_) return;
    self->closing_ = true;
    self->close_timer_.expires_after(timeout);
    self->spawn(close_deadline(self));
    self->look();
  });
  if (on_io_thread) {
    thread_.detach();  // The last reference was one that this thread let go of.
  } else {
    thread_.join();
  }
  core_->lose(Status(Code::kDisconnected, "the session was closed"));
}

}  // namespace rgpu
