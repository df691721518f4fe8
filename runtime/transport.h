// Transport: from a host name to a connected TCP socket.
//
// Threading: connect_tcp() runs `io` on the calling thread; nobody else may run it meanwhile.
//            adopt_socket() takes over a socket that somebody else connected.
// Errors:    kDisconnected; the message names host and port and what to do next, in one line.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "wire/status.h"

namespace rgpu {

struct Peer {
  std::string host;
  uint16_t port = 0;
  [[nodiscard]] std::string name() const;  // "HOST:PORT", with brackets around an IPv6 address.
};

// "5 s", "250 ms"
[[nodiscard]] std::string to_text(std::chrono::milliseconds duration);

// Resolves and connects, `timeout` for both together. Sets TCP_NODELAY and keepalive.
[[nodiscard]] Result<boost::asio::ip::tcp::socket> connect_tcp(boost::asio::io_context& io,
                                                               const Peer& peer,
                                                               std::chrono::milliseconds timeout);
[[nodiscard]] Result<boost::asio::ip::tcp::socket> adopt_socket(boost::asio::io_context& io,
                                                                int socket);

}  // namespace rgpu
