#include "tests/server/worker_process.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "server/worker.h"
#include "tests/server/io_uring_ban.h"
#include "tests/server/store_engine.h"
#include "wire/frame.h"

namespace rgpu::server::testing {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void serve(int listener, const WorkerOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.silent) spdlog::set_level(spdlog::level::off);
  if (options.forbid_io_uring) forbid_io_uring();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  std::array<std::byte, sizeof(wire::Preamble)> preamble;
  if (recv(socket, preamble.data(), preamble.size(), MSG_WAITALL) !=
      static_cast<ssize_t>(preamble.size())) {
    _exit(EXIT_FAILURE);
  }
  run_worker(socket, SessionId{}, options.io,
             [](const EngineContext& context) { return std::make_unique<StoreEngine>(context); });
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerOptions& options) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size_bytes = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size_bytes) != 0) {
    throw std::runtime_error("cannot listen on a loopback port");
  }
  port_ = ntohs(address.sin_port);
  pid_ = fork();
  if (pid_ == 0) serve(listener, options);
  close(listener);
  if (pid_ < 0) throw std::runtime_error("fork");
}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::optional<int> WorkerProcess::wait() {
  for (int tries = 0; tries < 2000; ++tries) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    std::this_thread::sleep_for(10ms);
  }
  return std::nullopt;
}

}  // namespace rgpu::server::testing
