// Relay: makes the loopback interface look like a long line — delay, bandwidth, cuts.
//
// Each piece of data that is read gets the moment at which it is due on the other side (arrival +
// RTT/2, later when the cap says so) and waits in a queue, so that order is kept and a delay never
// limits throughput. The cap holds per direction over all connections. What it does not imitate:
// the TCP handshake's own round trip, slow start, and loss.
//
// Threading: the thread that runs `io` alone; others post to it.
// Lifetime:  coroutines hold the Relay until stop() and the end of its connections.
// Errors:    open() says why it cannot listen or resolve; a connection's end is passed on.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "wire/status.h"

namespace rgpu {

struct RelayAddress {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0, to listen on: a free one.
};
// "HOST:PORT" or ":PORT".
[[nodiscard]] Result<RelayAddress> parse_relay_address(const std::string& text);

struct RelayOptions {
  RelayAddress listen;
  RelayAddress target;
  std::chrono::nanoseconds round_trip{0};
  double megabits_per_s = 0;  // Per direction; 0: no cap.
  // So long after the first connection every connection is closed and what is in flight is lost.
  std::optional<std::chrono::nanoseconds> cut_at;
  // Refuses connections for so long after the cut; with no cut_at, from the beginning.
  std::chrono::nanoseconds down_for{0};
};

// `turns`: how often the flow of data turned from up (client to server) to down, which bounds the
// number of round trips that anybody can have waited for.
struct RelayFigures {
  uint64_t connections = 0;
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t turns = 0;
  // When data first reached the server since the line was set, and last came from it. Epoch: never.
  std::chrono::steady_clock::time_point first_delivered_up{};
  std::chrono::steady_clock::time_point last_received_down{};
  [[nodiscard]] std::string to_json() const;
};

class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(boost::asio::io_context& io, RelayOptions options);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Resolves, binds and starts; port() is known then.
  [[nodiscard]] Status open();
  // Another line from now on, for what is read later; connections stay. Set it while nothing is on
  // its way: what overtakes is held back, so that order is kept.
  void set_line(std::chrono::nanoseconds round_trip, double megabits_per_s);
  // Closes everything; `io` then runs out of work.
  void stop();

  [[nodiscard]] uint16_t port() const noexcept { return options_.listen.port; }
  [[nodiscard]] RelayFigures figures() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  using RelayPtr = std::shared_ptr<Relay>;
  struct Link;
  struct Pipe;
  struct Pair;

  static boost::asio::awaitable<void> accept_loop(RelayPtr self);
  static boost::asio::awaitable<void> schedule(RelayPtr self);
  static boost::asio::awaitable<void> serve(RelayPtr self, std::shared_ptr<Pair> pair);
  static boost::asio::awaitable<void> receive(RelayPtr self, std::shared_ptr<Pair> pair,
                                              Pipe& pipe);
  static boost::asio::awaitable<void> deliver(RelayPtr self, std::shared_ptr<Pair> pair,
                                              Pipe& pipe);

  void spawn(boost::asio::awaitable<void> task);
  [[nodiscard]] Status bind();
  void listen();
  void cut();

  boost::asio::io_context& io_;
  RelayOptions options_;
  boost::asio::ip::tcp::endpoint target_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer schedule_timer_;
  std::unique_ptr<Link> up_;
  std::unique_ptr<Link> down_;
  std::set<std::shared_ptr<Pair>> pairs_;
  uint64_t connections_ = 0;
  uint64_t turns_ = 0;
  Clock::time_point first_delivered_up_{};
  Clock::time_point last_received_down_{};
  const Link* last_ = nullptr;  // On which data flowed last.
  bool stopped_ = false;
};

}  // namespace rgpu
