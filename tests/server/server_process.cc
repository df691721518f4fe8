#include "tests/server/server_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/server/io_uring_ban.h"

namespace rgpu::server::testing {
namespace {

using namespace std::chrono_literals;
constexpr int kDeadlineMs = 20'000;  // Generous: the machine may be busy.

void wait_readable(int descriptor, const char* what) {
  pollfd readable{descriptor, POLLIN, 0};
  if (poll(&readable, 1, kDeadlineMs) <= 0) throw std::runtime_error(std::string("no ") + what);
}

std::string read_line(int descriptor) {
  std::string line;
  for (char byte = 0; byte != '\n';) {
    wait_readable(descriptor, "first line");
    if (read(descriptor, &byte, 1) != 1) return line;
    line += byte;
  }
  return line;
}

}  // namespace

ServerProcess::ServerProcess(std::vector<std::string> options, bool forbid_io_uring)
    : log_(memfd_create("log", MFD_CLOEXEC)) {
  std::array<int, 2> output{};
  if (log_ < 0 || pipe2(output.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  std::vector<std::string> words = {RGPU_OPSERVER, "--port",    "0", "--device",
                                    "cpu",         "--threads", "1"};
  const char* io = std::getenv("RGPU_TEST_IO");
  if (io != nullptr && std::ranges::find(options, "--io") == options.end()) {
    words.insert(words.end(), {"--io", io});
  }
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(output[1], STDOUT_FILENO);
    dup2(log_, STDERR_FILENO);
    if (forbid_io_uring) testing::forbid_io_uring();
    execv(RGPU_OPSERVER, arguments.data());
    _exit(127);
  }
  close(output[1]);
  first_line_ = read_line(output[0]);
  close(output[0]);
  const size_t colon = first_line_.find(':');
  if (colon == std::string::npos) {
    (void)terminate();
    throw std::runtime_error("the server did not start: " + log());
  }
  port_ = static_cast<uint16_t>(std::stoi(first_line_.substr(colon + 1)));
}

ServerProcess::~ServerProcess() {
  if (::testing::Test::HasFailure()) std::fputs(log().c_str(), stderr);
  close(log_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string ServerProcess::log() const {
  std::string text(64u << 10, '\0');
  const ssize_t size_bytes = pread(log_, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(size_bytes, 0)));
  return text;
}

std::vector<pid_t> ServerProcess::workers() const {
  const std::string task = std::to_string(pid_);
  std::ifstream file("/proc/" + task + "/task/" + task + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

std::optional<int> ServerProcess::terminate() {
  kill(pid_, SIGTERM);
  for (int tries = 0; tries < 300; ++tries) {
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
