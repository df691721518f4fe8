// WorkerProcess: a worker of the server, forked as the listener does it, over a StoreEngine.
//
// Threading: construct it where the process has no other thread.
// Errors:    std::runtime_error when a socket or a process cannot be had.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "server/io_choice.h"

namespace rgpu::server::testing {

struct WorkerOptions {
  IoChoice io;
  bool forbid_io_uring = false;  // After the choice was made.
  bool silent = true;            // Logs nothing.
};

class WorkerProcess {
 public:
  explicit WorkerProcess(const WorkerOptions& options);
  ~WorkerProcess();  // Kills it if it still runs.
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Takes one connection.
  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  // Waits for its end: the exit status, or minus the signal. Nothing when it did not come in time.
  [[nodiscard]] std::optional<int> wait();

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

}  // namespace rgpu::server::testing
