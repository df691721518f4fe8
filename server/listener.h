// Listener: accepts connections, reads their preamble, and forks a worker for each good one.
//
// Threading: one thread, the process's only one, so that fork() is safe without exec().
// Lifetime:  run() returns after SIGTERM or SIGINT, when all workers have ended.
// Errors:    a bad preamble is answered with a Goodbye that says why. A worker's death is logged
// and
//            is no concern of any other session.
#pragma once

#include <sys/types.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "server/options.h"
#include "server/worker.h"
#include "wire/status.h"

namespace rgpu::server {

namespace asio = boost::asio;

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(const Options& options, IoChoice io, EngineFactory make_engine);
  // Binds. Errors name the address.
  [[nodiscard]] Status open();
  [[nodiscard]] uint16_t port() const;
  void run();

 private:
  static asio::awaitable<void> accept_loop(std::shared_ptr<Listener> self);
  static asio::awaitable<void> signal_loop(std::shared_ptr<Listener> self);
  static asio::awaitable<void> prove(std::shared_ptr<Listener> self, asio::ip::tcp::socket socket);
  void spawn(asio::awaitable<void> task);

  [[nodiscard]] bool start_worker(asio::ip::tcp::socket& socket);
  void reap_workers();
  void stop();

  const Options options_;
  const IoChoice io_choice_;
  const EngineFactory make_engine_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_{io_};
  asio::posix::stream_descriptor signals_{io_};
  asio::steady_timer proven_{io_};  // Cancelled when a connection is proven or given up.
  asio::steady_timer grace_{io_};   // Of the workers, at the end.
  std::map<pid_t, SessionId> workers_;
  uint32_t unproven_ = 0;
  bool stopping_ = false;
};

}  // namespace rgpu::server
