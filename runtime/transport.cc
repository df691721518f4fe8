#include "runtime/transport.h"

#include <netdb.h>
#include <netinet/tcp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace rgpu {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Endpoints = std::vector<tcp::endpoint>;

Status no_answer(const Peer& peer, std::chrono::milliseconds timeout) {
  return Status(Code::kDisconnected, "no answer from " + peer.name() + " within " +
                                         to_text(timeout) +
                                         ": is the address right, and no firewall in between?");
}

Result<Endpoints> look_up(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Status(Code::kDisconnected,
                  "cannot resolve the host name \"" + host + "\": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Endpoints endpoints;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    tcp::endpoint endpoint;
    if (at->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), at->ai_addr, at->ai_addrlen);
    endpoint.resize(at->ai_addrlen);
    endpoint.port(port);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

// getaddrinfo cannot be interrupted and may take half a minute, so it gets a thread that is left
// behind when the time is over. Numeric addresses need none.
Result<Endpoints> resolve(const Peer& peer, std::chrono::milliseconds timeout) {
  error_code not_numeric;
  const asio::ip::address address = asio::ip::make_address(peer.host, not_numeric);
  if (!not_numeric) return Endpoints{tcp::endpoint(address, peer.port)};
  auto promise = std::make_shared<std::promise<Result<Endpoints>>>();
  std::future<Result<Endpoints>> answer = promise->get_future();
  std::thread([promise, host = peer.host, port = peer.port] {
    promise->set_value(look_up(host, port));
  }).detach();
  if (answer.wait_for(timeout) != std::future_status::ready) {
    return Status(Code::kDisconnected,
                  "cannot resolve the host name \"" + peer.host + "\" within " + to_text(timeout));
  }
  return answer.get();
}

Status connect_error(const Peer& peer, const error_code& error) {
  if (error == asio::error::connection_refused) {
    return Status(Code::kDisconnected,
                  "no rgpu server at " + peer.name() +
                      " (Connection refused): start one with `rgpu-opserver`, or run your program "
                      "with `rgpu-run --local`");
  }
  return Status(Code::kDisconnected, "cannot connect to " + peer.name() + ": " + error.message());
}

// A peer that vanished without a word is noticed after about a minute of silence.
void set_options(tcp::socket& socket) {
  error_code ignored;  // None of them is essential.
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
#ifdef TCP_KEEPIDLE
  using KeepIdle = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
  using KeepInterval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
  using KeepCount = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;
  socket.set_option(KeepIdle(30), ignored);
  socket.set_option(KeepInterval(10), ignored);
  socket.set_option(KeepCount(3), ignored);
#endif
}

}  // namespace

std::string Peer::name() const {
  const bool bracket = host.find(':') != std::string::npos;
  return (bracket ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string to_text(std::chrono::milliseconds duration) {
  const auto ms = duration.count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

Result<tcp::socket> connect_tcp(asio::io_context& io, const Peer& peer,
                                std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  Result<Endpoints> endpoints = resolve(peer, timeout);
  if (!endpoints) return endpoints.error();
  tcp::socket socket(io);
  bool done = false;
  error_code result;
  const auto connected = [&](const error_code& error, const tcp::endpoint&) {
    done = true;
    result = error;
  };
  asio::async_connect(socket, *endpoints, connected);
  io.restart();
  io.run_until(deadline);
  if (!done) {
    error_code ignored;
    socket.close(ignored);
    io.run();
    return no_answer(peer, timeout);
  }
  io.restart();
  if (result) return connect_error(peer, result);
  set_options(socket);
  return socket;
}

Result<tcp::socket> adopt_socket(asio::io_context& io, int socket) {
  tcp::socket adopted(io);
  error_code error;
  // The family named here decides no more than the type of the addresses, which nobody asks for.
  adopted.assign(tcp::v4(), socket, error);
  if (error) {
    return Status(Code::kInvalidArgument, "SessionOptions::socket, " + std::to_string(socket) +
                                              ", cannot be used: " + error.message());
  }
  set_options(adopted);
  return adopted;
}

}  // namespace rgpu
