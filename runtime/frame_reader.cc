#include "runtime/frame_reader.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>

namespace rgpu {

namespace asio = boost::asio;

namespace {
constexpr size_t kBufferSizeBytes = 64 << 10;
}

FrameReader::FrameReader(asio::ip::tcp::socket& socket, Counters& counters)
    : socket_(socket), counters_(counters), buffer_(kBufferSizeBytes) {}

std::span<const std::byte> FrameReader::rest() const noexcept {
  return {buffer_.data() + begin_, end_ - begin_};
}

asio::awaitable<Status> FrameReader::read_some(std::span<std::byte> target,
                                               size_t& read_size_bytes) {
  const asio::mutable_buffer buffer(target.data(), target.size());
  const auto [error, size] =
      co_await socket_.async_read_some(buffer, asio::as_tuple(asio::use_awaitable));
  read_size_bytes = size;
  bump(counters_.bytes_in, size);
  if (error == asio::error::eof) co_return Status(Code::kDisconnected, "");
  if (error) co_return Status(Code::kDisconnected, error.message());
  co_return Status();
}

asio::awaitable<Status> FrameReader::fill(size_t size_bytes) {
  if (end_ - begin_ >= size_bytes) co_return Status();
  if (begin_ != 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (buffer_.size() < size_bytes) buffer_.resize(size_bytes);
  while (end_ < size_bytes) {
    const std::span<std::byte> room(buffer_.data() + end_, buffer_.size() - end_);
    size_t size = 0;
    Status status = co_await read_some(room, size);
    end_ += size;
    if (!status) co_return status;
  }
  co_return Status();
}

asio::awaitable<Result<wire::FrameHeader>> FrameReader::next_header() {
  Status status = co_await fill(sizeof(wire::FrameHeader));
  if (!status) co_return status;
  const std::span<const std::byte, sizeof(wire::FrameHeader)> bytes(buffer_.data() + begin_,
                                                                    sizeof(wire::FrameHeader));
  Result<wire::FrameHeader> header = wire::parse_frame_header(bytes);
  if (header) begin_ += sizeof(wire::FrameHeader);
  co_return header;
}

asio::awaitable<Result<std::span<const std::byte>>> FrameReader::read_body(uint32_t size_bytes) {
  Status status = co_await fill(size_bytes);
  if (!status) co_return status;
  const std::span<const std::byte> body(buffer_.data() + begin_, size_bytes);
  begin_ += size_bytes;
  co_return body;
}

asio::awaitable<Status> FrameReader::read_payload(std::span<std::byte> target) {
  const size_t buffered = std::min(target.size(), end_ - begin_);
  bump(counters_.payload_bytes_in, buffered);
  if (buffered != 0) std::memcpy(target.data(), buffer_.data() + begin_, buffered);
  begin_ += buffered;
  target = target.subspan(buffered);
  while (!target.empty()) {
    size_t size = 0;
    Status status = co_await read_some(target, size);
    if (!status) co_return status;
    bump(counters_.payload_bytes_in, size);
    target = target.subspan(size);
  }
  co_return Status();
}

asio::awaitable<Status> FrameReader::skip_payload(uint64_t size_bytes) {
  std::vector<std::byte> scratch(std::min<uint64_t>(size_bytes, kBufferSizeBytes));
  while (size_bytes != 0) {
    const uint64_t size = std::min<uint64_t>(size_bytes, scratch.size());
    Status status = co_await read_payload(std::span(scratch.data(), size));
    if (!status) co_return status;
    size_bytes -= size;
  }
  co_return Status();
}

}  // namespace rgpu
