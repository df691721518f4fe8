// ServerProcess: the real rgpu-opserver as a child process.
//
// Every wait has a deadline; what does not come in time fails the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rgpu::server::testing {

class ServerProcess {
 public:
  // With RGPU_TEST_IO in the environment, it gets that as --io. Throws, with the log, when the
  // server does not start.
  explicit ServerProcess(std::vector<std::string> options = {}, bool forbid_io_uring = false);
  ~ServerProcess();  // Kills it if it still runs.
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] std::string log() const;  // What it has written to stderr.
  [[nodiscard]] const std::string& first_line() const noexcept { return first_line_; }
  [[nodiscard]] std::vector<pid_t> workers() const;
  // Sends SIGTERM; the exit status, or nothing when it did not end within 3 s.
  [[nodiscard]] std::optional<int> terminate();

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
  int log_ = -1;
  std::string first_line_;
};

}  // namespace rgpu::server::testing
