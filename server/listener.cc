#include "server/listener.h"

#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "wire/frame.h"
#include "wire/messages.h"

namespace rgpu::server {
namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;

constexpr auto kPreambleDeadline = 5s;
constexpr auto kLingerDeadline = 2s;
constexpr auto kWorkerGrace = 2s;
constexpr auto kForever = std::chrono::hours(24 * 365);
constexpr uint32_t kUnprovenMax = 64;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGCHLD);
  return set;
}

// Cancels what goes on with the socket when the time has come; disarmed by its destruction, also
// when the timer's handler is already queued.
class Deadline {
 public:
  Deadline(tcp::socket& socket, std::chrono::seconds deadline)
      : timer_(socket.get_executor(), deadline), socket_(std::make_shared<tcp::socket*>(&socket)) {
    timer_.async_wait([target = socket_](const boost::system::error_code& error) {
      if (error || *target == nullptr) return;
      (*target)->cancel();
      *target = nullptr;
    });
  }
  ~Deadline() { *socket_ = nullptr; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  [[nodiscard]] bool passed() const noexcept { return *socket_ == nullptr; }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<tcp::socket*> socket_;
};

// The preamble, or why it is none. A first byte that cannot belong to one is enough.
asio::awaitable<Status> read_preamble(tcp::socket& socket) {
  std::array<std::byte, sizeof(wire::Preamble)> bytes{};
  size_t size_bytes = 0;
  const Deadline deadline(socket, kPreambleDeadline);
  const wire::Preamble expected;
  while (size_bytes < bytes.size()) {
    const auto buffer = asio::buffer(bytes.data() + size_bytes, bytes.size() - size_bytes);
    const auto [error, received] = co_await socket.async_read_some(buffer, kAwait);
    if (deadline.passed()) co_return Status(Code::kInvalidArgument, "no preamble came within 5 s");
    if (error) co_return Status(Code::kDisconnected, error.message());
    size_bytes += received;
    const size_t known = std::min(size_bytes, expected.magic.size());
    if (std::memcmp(bytes.data(), expected.magic.data(), known) != 0) break;
  }
  const Result<wire::Preamble> preamble = wire::parse_preamble(bytes);
  co_return preamble ? Status() : preamble.error();
}

// A lingering close: bytes left unread would turn it into a reset, which overtakes the message.
asio::awaitable<void> refuse(tcp::socket& socket, Status reason) {
  wire::FrameHeader header;
  header.kind = static_cast<uint16_t>(wire::FrameKind::kGoodbye);
  const wire::Goodbye goodbye{reason.code(), reason.message()};
  const std::vector<std::byte> body = wire::encode(goodbye);
  header.body_size_bytes = static_cast<uint32_t>(body.size());
  const auto header_bytes = wire::to_bytes(header);
  const std::array<asio::const_buffer, 2> buffers = {asio::buffer(header_bytes),
                                                     asio::buffer(body)};
  const Deadline deadline(socket, kLingerDeadline);
  const auto [error, sent] = co_await asio::async_write(socket, buffers, kAwait);
  if (error) co_return;
  boost::system::error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<std::byte, 4096> discarded;
  for (;;) {
    const auto buffer = asio::buffer(discarded);
    const auto [read_error, received] = co_await socket.async_read_some(buffer, kAwait);
    if (read_error) co_return;
  }
}

}  // namespace

Listener::Listener(const Options& options, IoChoice io, EngineFactory make_engine)
    : options_(options), io_choice_(std::move(io)), make_engine_(std::move(make_engine)) {
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_.assign(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Status Listener::open() {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(options_.bind_address, error);
  if (!error) acceptor_.open(tcp::v4(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind({address, options_.port}, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return {Code::kInvalidArgument, "cannot listen on " + options_.bind_address + ":" +
                                      std::to_string(options_.port) + ": " + error.message()};
}

uint16_t Listener::port() const { return acceptor_.local_endpoint().port(); }

void Listener::run() {
  spawn(accept_loop(shared_from_this()));
  spawn(signal_loop(shared_from_this()));
  io_.run();
}

void Listener::spawn(asio::awaitable<void> task) {
  asio::co_spawn(io_, std::move(task), [](const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      spdlog::error("listener: {}", exception.what());
    }
  });
}

asio::awaitable<void> Listener::accept_loop(std::shared_ptr<Listener> self) {
  for (;;) {
    // Connections beyond the bound wait in the kernel's backlog.
    while (self->unproven_ >= kUnprovenMax) {
      self->proven_.expires_after(kForever);
      co_await self->proven_.async_wait(kAwait);
    }
    auto [error, socket] = co_await self->acceptor_.async_accept(kAwait);
    if (self->stopping_) co_return;
    if (error) {
      spdlog::warn("accept: {}", error.message());
      self->proven_.expires_after(100ms);  // Out of descriptors, most likely.
      co_await self->proven_.async_wait(kAwait);
      continue;
    }
    ++self->unproven_;
    self->spawn(prove(self, std::move(socket)));
  }
}

asio::awaitable<void> Listener::prove(std::shared_ptr<Listener> self, tcp::socket socket) {
  Status status = co_await read_preamble(socket);
  if (status.ok() && self->workers_.size() >= self->options_.sessions_max) {
    status = Status(Code::kExhausted, "this server already has " +
                                          std::to_string(self->workers_.size()) + " sessions");
  }
  if (status.ok() && !self->stopping_ && !self->start_worker(socket)) {
    status = Status(Code::kExhausted, "this server cannot start a worker process");
  }
  if (!status.ok()) {
    spdlog::info("connection refused: {}", status.message());
    if (status.code() != Code::kDisconnected) co_await refuse(socket, status);
  }
  --self->unproven_;
  self->proven_.cancel();
}

bool Listener::start_worker(tcp::socket& socket) {
  SessionId id;
  if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) return false;
  const pid_t listener = getpid();
  const pid_t worker = fork();
  if (worker == 0) {
    // SIGTERM and SIGINT stay blocked: the session reads them from a descriptor of its own.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != listener) _exit(EXIT_SUCCESS);
    run_worker(socket.native_handle(), id, io_choice_, make_engine_);
  }
  if (worker < 0) {
    spdlog::error("fork: {}", std::strerror(errno));
    return false;
  }
  workers_.emplace(worker, id);
  spdlog::info("session {} started (process {}, {} in all)", to_hex(id), worker, workers_.size());
  return true;
}

void Listener::reap_workers() {
  int status = 0;
  for (pid_t worker = 0; (worker = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = workers_.find(worker);
    if (found == workers_.end()) continue;
    if (WIFSIGNALED(status)) {
      const char* name = sigabbrev_np(WTERMSIG(status));
      spdlog::error("session {}: its worker (process {}) died by SIG{}", to_hex(found->second),
                    worker, name != nullptr ? name : "?");
    }
    workers_.erase(found);
  }
  if (stopping_ && workers_.empty()) io_.stop();
}

asio::awaitable<void> Listener::signal_loop(std::shared_ptr<Listener> self) {
  for (;;) {
    signalfd_siginfo info{};
    const auto buffer = asio::buffer(&info, sizeof info);
    const auto [error, size_bytes] = co_await self->signals_.async_read_some(buffer, kAwait);
    if (error) co_return;
    if (info.ssi_signo != SIGCHLD) self->stop();
    self->reap_workers();
  }
}

void Listener::stop() {
  if (stopping_) return;
  stopping_ = true;
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& [worker, id] : workers_) kill(worker, SIGTERM);
  grace_.expires_after(kWorkerGrace);
  grace_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    for (const auto& [worker, id] : workers_) kill(worker, SIGKILL);  // SIGCHLD does the rest.
  });
}

}  // namespace rgpu::server
