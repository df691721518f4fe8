#include "tests/conformance/model_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "server/batch_queue.h"
#include "server/session.h"
#include "tests/conformance/model_engine.h"
#include "wire/frame.h"

namespace rgpu::testing {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

int accept_one(int listener) {
  pollfd waiting{listener, POLLIN, 0};
  return ::poll(&waiting, 1, 10'000) == 1 ? ::accept(listener, nullptr, nullptr) : -1;
}

}  // namespace

ModelServer::ModelServer(Transport transport, server::Io io) {
  // A session reads them from a descriptor.
  spdlog::set_level(spdlog::level::warn);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (transport == Transport::kPipe) {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "socketpair");
    client_ = ends[0];
    thread_ = std::thread([this, server = ends[1], io] { serve(server, io); });
    return;
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener_, generic, size) == 0 && ::listen(listener_, 1) == 0 &&
              ::getsockname(listener_, generic, &size) == 0,
          "listen");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this, io] { serve(accept_one(listener_), io); });
}

ModelServer::~ModelServer() {
  thread_.join();
  if (listener_ >= 0) ::close(listener_);
}

void ModelServer::serve(int socket, server::Io io) {
  if (socket < 0) return;
  std::array<std::byte, sizeof(wire::Preamble)> preamble;
  if (::recv(socket, preamble.data(), preamble.size(), MSG_WAITALL) != ssize_t{preamble.size()}) {
    ::close(socket);
    return;
  }
  server::BatchQueue queue({});
  server::WorkClock clock;
  const server::SessionParts parts{socket, {}, queue, clock};
  const Result<std::shared_ptr<server::Session>> made = io == server::Io::kIoUring
                                                            ? server::io_uring::make_session(parts)
                                                            : server::epoll::make_session(parts);
  if (!made) throw std::runtime_error(made.error().message());
  const std::shared_ptr<server::Session>& session = *made;
  auto engine = std::make_unique<ModelEngine>(server::EngineContext{*session, clock});
  std::thread decoder([&] {
    while (std::unique_ptr<server::IncomingBatch> batch = queue.pop()) {
      clock.begin();
      engine->apply(std::move(batch));
      clock.end();
    }
  });
  session->run(*engine);
  queue.close();
  decoder.join();
  engine.reset();  // It answers the session until its threads have ended.
  session->close();
}

}  // namespace rgpu::testing
