#include "server/cuda/real/output_capture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>

namespace rgpu::server::cuda {
namespace {
constexpr int kPipeSizeBytes = 1 << 20;
}

OutputCapture::OutputCapture(std::function<void(std::string_view)> print)
    : print_(std::move(print)) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  std::fflush(stdout);
  saved_output_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0 || dup2(ends[1], STDOUT_FILENO) < 0) {
    close(ends[0]);
    close(ends[1]);
    return;
  }
  close(ends[1]);
  pipe_ = ends[0];
  (void)fcntl(pipe_, F_SETPIPE_SZ, kPipeSizeBytes);
  (void)fcntl(pipe_, F_SETFL, O_NONBLOCK);
  thread_ = std::thread([this] { run(); });
}

OutputCapture::~OutputCapture() {
  if (pipe_ >= 0) {
    drain();
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
    thread_.join();
    if (saved_output_ >= 0) {
      dup2(saved_output_, STDOUT_FILENO);
    } else {
      close(STDOUT_FILENO);
    }
    close(pipe_);
  }
  if (saved_output_ >= 0) close(saved_output_);
  if (wake_ >= 0) close(wake_);
}

void OutputCapture::drain() {
  if (pipe_ < 0) return;
  std::fflush(stdout);
  const std::lock_guard lock(mutex_);
  read_all();
}

void OutputCapture::read_all() {
  std::array<char, 65536> text;
  for (;;) {
    const ssize_t size = read(pipe_, text.data(), text.size());
    if (size <= 0) return;
    print_({text.data(), static_cast<size_t>(size)});
  }
}

void OutputCapture::run() {
  for (;;) {
    std::array<pollfd, 2> ready{{{pipe_, POLLIN, 0}, {wake_, POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0) continue;
    const std::lock_guard lock(mutex_);
    read_all();
    if (ready[1].revents != 0) return;
  }
}

}  // namespace rgpu::server::cuda
