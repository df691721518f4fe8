// FrameReader: frames off a socket. Small ones are cut out of one buffer, so that a burst of
// acknowledgements costs one system call; payloads go straight to where they belong.
//
// Threading: the I/O thread alone.
// Lifetime:  borrows the socket; a body is valid until the next call.
// Errors:    kDisconnected with the system's word for it ("" for an orderly end of the stream), or
//            parse_frame_header's kInvalidArgument.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/counters.h"
#include "wire/frame.h"
#include "wire/status.h"

namespace rgpu {

class FrameReader {
 public:
  FrameReader(boost::asio::ip::tcp::socket& socket, Counters& counters);

  [[nodiscard]] boost::asio::awaitable<Result<wire::FrameHeader>> next_header();
  [[nodiscard]] boost::asio::awaitable<Result<std::span<const std::byte>>> read_body(
      uint32_t size_bytes);
  // Fills `target`, whose memory the caller keeps alive.
  [[nodiscard]] boost::asio::awaitable<Status> read_payload(std::span<std::byte> target);
  [[nodiscard]] boost::asio::awaitable<Status> skip_payload(uint64_t size_bytes);
  // What arrived and was not read yet.
  [[nodiscard]] std::span<const std::byte> rest() const noexcept;

 private:
  // Reads until at least `size_bytes` are buffered in one piece.
  [[nodiscard]] boost::asio::awaitable<Status> fill(size_t size_bytes);
  [[nodiscard]] boost::asio::awaitable<Status> read_some(std::span<std::byte> target,
                                                         size_t& read_size_bytes);

  boost::asio::ip::tcp::socket& socket_;
  Counters& counters_;
  std::vector<std::byte> buffer_;  // Grows to the largest body.
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace rgpu
