// ModelServer: the server's side of one session in this process, over a ModelEngine.
//
// Threading: construct, use and destroy it on one thread; it has threads of its own.
// Errors:    std::runtime_error when there is no socket. The destructor waits for the session's
//            end, which the client's close() brings.
#pragma once

#include <cstdint>
#include <thread>

#include "server/io_choice.h"

namespace rgpu::testing {

class ModelServer {
 public:
  enum class Transport : uint8_t { kPipe, kTcp };
  ModelServer(Transport transport, server::Io io);
  ~ModelServer();
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;

  // For SessionOptions: the end of the pipe, which is the session's from then on, or the port.
  [[nodiscard]] int socket() const noexcept { return client_; }
  [[nodiscard]] uint16_t port() const noexcept { return port_; }

 private:
  void serve(int socket, server::Io io);

  int client_ = -1;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace rgpu::testing
