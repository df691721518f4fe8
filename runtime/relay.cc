#include "runtime/relay.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <cstdio>
#include <deque>
#include <utility>
#include <vector>

namespace rgpu {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kReadSizeBytes = 256 << 10;
constexpr size_t kCappedPieceSizeBytes = 16 << 10;
constexpr uint64_t kQueueSizeBytesMax = 256 << 20;
constexpr auto kForever = std::chrono::steady_clock::time_point::max();

}  // namespace

// One direction's delay and rate, shared by all connections.
struct Relay::Link {
  Link(std::chrono::nanoseconds one_way, double megabits_per_s) { set(one_way, megabits_per_s); }

  void set(std::chrono::nanoseconds one_way, double megabits_per_s) {
    delay = one_way;
    ns_per_byte = megabits_per_s > 0 ? 8e3 / megabits_per_s : 0;
    // Under a cap: what is on its way, and a router's buffer more. Past that we stop reading, as a
    // full path does.
    queue_size_bytes_max =
        ns_per_byte > 0
            ? static_cast<uint64_t>(static_cast<double>(delay.count()) / ns_per_byte) + (1 << 20)
            : kQueueSizeBytesMax;
  }

  Clock::time_point due(size_t size_bytes) {
    bytes += size_bytes;
    const Clock::time_point now = Clock::now();
    if (ns_per_byte == 0) return now + delay;
    const std::chrono::nanoseconds takes(
        static_cast<int64_t>(static_cast<double>(size_bytes) * ns_per_byte));
    free_at = std::max(free_at, now) + takes;
    return free_at + delay;
  }

  std::chrono::nanoseconds delay{0};
  double ns_per_byte = 0;  // 0: no cap.
  uint64_t queue_size_bytes_max = 0;
  Clock::time_point free_at{};
  uint64_t bytes = 0;
};

// One direction of one connection.
struct Relay::Pipe {
  struct Chunk {
    Clock::time_point due;
    std::vector<std::byte> bytes;  // Empty: the sender has closed its side.
  };

  Pipe(asio::io_context& io, tcp::socket& from, tcp::socket& to, Link& line)
      : source(from), target(to), link(line), ready(io, kForever), room(io, kForever) {}

  // Takes `size` bytes from the beginning of `buffer`, which is as large as before afterwards.
  void enqueue(std::vector<std::byte>& buffer, size_t size) {
    const auto begin = buffer.begin();
    if (link.ns_per_byte > 0) {
      // In pieces, each due when its own last byte has passed the line.
      for (size_t at = 0; at < size; at += kCappedPieceSizeBytes) {
        const size_t piece = std::min(kCappedPieceSizeBytes, size - at);
        const auto first = begin + static_cast<std::ptrdiff_t>(at);
        queue.push_back({link.due(piece), {first, first + static_cast<std::ptrdiff_t>(piece)}});
      }
    } else if (size < buffer.size() / 2) {
      queue.push_back({link.due(size), {begin, begin + static_cast<std::ptrdiff_t>(size)}});
    } else {  // Handed over as it is; a small piece is copied, so that queues hold what they say.
      buffer.resize(size);
      queue.push_back(
          {link.due(size), std::exchange(buffer, std::vector<std::byte>(kReadSizeBytes))});
    }
  }

  tcp::socket& source;
  tcp::socket& target;
  Link& link;
  std::deque<Chunk> queue;
  uint64_t queued_bytes = 0;
  asio::steady_timer ready;  // Cancelled when a chunk came, also the wait for the next one's time,
  asio::steady_timer room;   // and when a chunk left.
};

struct Relay::Pair {
  Pair(asio::io_context& io, tcp::socket socket, Link& up_link, Link& down_link)
      : client(std::move(socket)),
        server(io),
        up(io, client, server, up_link),
        down(io, server, client, down_link) {}

  void close() {
    error_code ignored;
    for (tcp::socket* socket : {&client, &server}) {
      socket->shutdown(tcp::socket::shutdown_both, ignored);
      socket->close(ignored);
    }
    closed = true;
    for (Pipe* pipe : {&up, &down}) {
      pipe->ready.cancel();
      pipe->room.cancel();
    }
  }

  tcp::socket client;
  tcp::socket server;
  Pipe up;
  Pipe down;
  uint32_t pipes_open = 2;
  bool closed = false;
};

Relay::Relay(asio::io_context& io, RelayOptions options)
    : io_(io),
      options_(std::move(options)),
      acceptor_(io),
      schedule_timer_(io),
      up_(std::make_unique<Link>(options_.round_trip / 2, options_.megabits_per_s)),
      down_(std::make_unique<Link>(options_.round_trip / 2, options_.megabits_per_s)) {}

Relay::~Relay() = default;

void Relay::spawn(asio::awaitable<void> task) {
  // Nothing here throws but for want of memory, and then a relay may end.
  const auto ended = [self = shared_from_this()](const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
  };
  asio::co_spawn(io_, std::move(task), ended);
}

Status Relay::open() {
  error_code error;
  tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options_.target.host, std::to_string(options_.target.port), error);
  if (error || found.empty()) {
    return Status(Code::kDisconnected,
                  "cannot resolve \"" + options_.target.host + "\": " + error.message());
  }
  target_ = found.begin()->endpoint();
  RGPU_RETURN_IF_ERROR(bind());
  if (options_.cut_at || options_.down_for.count() == 0) listen();
  spawn(schedule(shared_from_this()));
  return {};
}

Status Relay::bind() {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options_.listen.host, error);
  if (error) {
    return Status(Code::kInvalidArgument,
                  "cannot listen on \"" + options_.listen.host + "\": give a numeric address");
  }
  const tcp::endpoint endpoint(address, options_.listen.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (error) {
    return Status(Code::kExhausted, "cannot listen on " + options_.listen.host + ":" +
                                        std::to_string(options_.listen.port) + ": " +
                                        error.message());
  }
  options_.listen.port = acceptor_.local_endpoint().port();
  return {};
}

void Relay::listen() {
  error_code ignored;  // A bound socket can listen.
  acceptor_.listen(128, ignored);
  spawn(accept_loop(shared_from_this()));
}

void Relay::set_line(std::chrono::nanoseconds round_trip, double megabits_per_s) {
  up_->set(round_trip / 2, megabits_per_s);
  down_->set(round_trip / 2, megabits_per_s);
  first_delivered_up_ = last_received_down_ = {};
}

void Relay::stop() {
  stopped_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  schedule_timer_.cancel();
  cut();
}

void Relay::cut() {
  for (const std::shared_ptr<Pair>& pair : pairs_) pair->close();
}

RelayFigures Relay::figures() const noexcept {
  return {connections_, up_->bytes, down_->bytes, turns_, first_delivered_up_, last_received_down_};
}

asio::awaitable<void> Relay::schedule(RelayPtr self) {
  const auto wait = asio::as_tuple(asio::use_awaitable);
  asio::steady_timer& timer = self->schedule_timer_;
  if (self->options_.cut_at) {
    while (self->connections_ == 0 && !self->stopped_) {
      timer.expires_at(kForever);
      co_await timer.async_wait(wait);
    }
    if (self->stopped_) co_return;
    timer.expires_after(*self->options_.cut_at);
    co_await timer.async_wait(wait);
    if (self->stopped_) co_return;
    error_code ignored;
    self->acceptor_.close(ignored);
    self->cut();
  } else if (self->options_.down_for.count() == 0) {
    co_return;
  }
  timer.expires_after(self->options_.down_for);
  co_await timer.async_wait(wait);
  if (self->stopped_) co_return;
  if (!self->acceptor_.is_open() && !self->bind()) co_return;
  self->listen();
}

asio::awaitable<void> Relay::accept_loop(RelayPtr self) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  while (true) {
    auto [error, socket] = co_await self->acceptor_.async_accept(token);
    if (error == asio::error::operation_aborted || !self->acceptor_.is_open()) co_return;
    if (error) continue;
    auto pair = std::make_shared<Pair>(self->io_, std::move(socket), *self->up_, *self->down_);
    self->pairs_.insert(pair);
    if (++self->connections_ == 1 && self->options_.cut_at) self->schedule_timer_.cancel();
    self->spawn(serve(self, std::move(pair)));
  }
}

asio::awaitable<void> Relay::serve(RelayPtr self, std::shared_ptr<Pair> pair) {
  const auto [error] =
      co_await pair->server.async_connect(self->target_, asio::as_tuple(asio::use_awaitable));
  if (error || pair->closed) {
    pair->close();
    self->pairs_.erase(pair);
    co_return;
  }
  error_code ignored;
  pair->client.set_option(tcp::no_delay(true), ignored);
  pair->server.set_option(tcp::no_delay(true), ignored);
  for (Pipe* pipe : {&pair->up, &pair->down}) {
    self->spawn(receive(self, pair, *pipe));
    self->spawn(deliver(self, pair, *pipe));
  }
}

asio::awaitable<void> Relay::receive(RelayPtr self, std::shared_ptr<Pair> pair, Pipe& pipe) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  Link& link = pipe.link;
  std::vector<std::byte> buffer(kReadSizeBytes);
  while (!pair->closed) {
    // Under a cap little at a time, so that connections share the line.
    const size_t size_max = link.ns_per_byte > 0 ? kCappedPieceSizeBytes : buffer.size();
    const asio::mutable_buffer target(buffer.data(), size_max);
    const auto [error, size] = co_await pipe.source.async_read_some(target, token);
    if (pair->closed) co_return;
    if (error) {
      pipe.queue.push_back({Clock::now() + link.delay, {}});
      pipe.ready.cancel();
      co_return;
    }
    if (self->last_ != &link) {
      self->turns_ += &link == self->down_.get() ? 1 : 0;
      self->last_ = &link;
    }
    if (&link == self->down_.get()) self->last_received_down_ = Clock::now();
    if (pipe.queue.empty()) pipe.ready.cancel();
    pipe.enqueue(buffer, size);
    pipe.queued_bytes += size;
    while (pipe.queued_bytes > link.queue_size_bytes_max && !pair->closed) {
      co_await pipe.room.async_wait(token);
    }
  }
}

asio::awaitable<void> Relay::deliver(RelayPtr self, std::shared_ptr<Pair> pair, Pipe& pipe) {
  const auto token = asio::as_tuple(asio::use_awaitable);
  while (!pair->closed) {
    if (pipe.queue.empty()) {
      pipe.ready.expires_at(kForever);
      co_await pipe.ready.async_wait(token);
      continue;
    }
    if (const Clock::time_point due = pipe.queue.front().due; due > Clock::now()) {
      pipe.ready.expires_at(due);
      co_await pipe.ready.async_wait(token);
      continue;
    }
    const Pipe::Chunk chunk = std::move(pipe.queue.front());
    pipe.queue.pop_front();
    error_code error;
    if (chunk.bytes.empty()) {
      pipe.target.shutdown(tcp::socket::shutdown_send, error);
      break;
    }
    const asio::const_buffer bytes(chunk.bytes.data(), chunk.bytes.size());
    const auto [failed, size] = co_await asio::async_write(pipe.target, bytes, token);
    if (failed) {
      pair->close();
      break;
    }
    if (&pipe.link == self->up_.get() && self->first_delivered_up_ == Clock::time_point{}) {
      self->first_delivered_up_ = Clock::now();
    }
    pipe.queued_bytes -= size;
    pipe.room.cancel();
  }
  if (--pair->pipes_open != 0) co_return;
  if (!pair->closed) pair->close();
  self->pairs_.erase(pair);
}

Result<RelayAddress> parse_relay_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  RelayAddress address;
  if (colon != std::string::npos) {
    if (colon != 0) address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (error == std::errc() && parsed == end) return address;
  }
  return Status(Code::kInvalidArgument, "\"" + text + "\" is no address: write HOST:PORT");
}

std::string RelayFigures::to_json() const {
  char line[160];
  std::snprintf(
      line, sizeof(line),
      "{\"connections\": %llu, \"bytes_up\": %llu, \"bytes_down\": %llu, \"turns\": %llu}",
      static_cast<unsigned long long>(connections), static_cast<unsigned long long>(bytes_up),
      static_cast<unsigned long long>(bytes_down), static_cast<unsigned long long>(turns));
  return line;
}

}  // namespace rgpu
