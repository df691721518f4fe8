#include "server/io_choice.h"

#include <liburing.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>

namespace rgpu::server {
namespace {

constexpr unsigned kRingEntries = 16384;  // Asio's, which knows no other size.

// What Asio 1.81 submits for sockets, descriptors, timers and its own wake-ups.
constexpr std::array kOperations = {
    IORING_OP_NOP,      IORING_OP_READV,          IORING_OP_WRITEV,
    IORING_OP_POLL_ADD, IORING_OP_SENDMSG,        IORING_OP_RECVMSG,
    IORING_OP_TIMEOUT,  IORING_OP_TIMEOUT_REMOVE, IORING_OP_ASYNC_CANCEL,
};

Status refused(const char* call, int error) {
  std::string message = std::string(call) + ": " + std::generic_category().message(error);
  if (error == EPERM) {
    int disabled = 0;
    if (std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled && disabled != 0) {
      message += " (sysctl kernel.io_uring_disabled is " + std::to_string(disabled) + ")";
    } else {
      message += " (a container's seccomp profile, most likely)";
    }
  }
  if (error == ENOMEM) message += " (raise the memlock limit: ulimit -l)";
  if (error == ENOSYS) message += " (the kernel has no io_uring)";
  return {Code::kUnimplemented, std::move(message)};
}

Status probe(io_uring& ring) {
  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(
      io_uring_get_probe_ring(&ring), &io_uring_free_probe);
  if (probe == nullptr) return {Code::kUnimplemented, "the kernel does not tell what it can do"};
  for (const auto operation : kOperations) {
    if (io_uring_opcode_supported(probe.get(), operation) == 0) {
      return {Code::kUnimplemented,
              "the kernel lacks io_uring operation " + std::to_string(operation)};
    }
  }
  io_uring_prep_nop(io_uring_get_sqe(&ring));
  const int submitted = io_uring_submit(&ring);
  if (submitted < 0) return refused("io_uring_enter", -submitted);
  io_uring_cqe* completion = nullptr;
  const int waited = io_uring_wait_cqe(&ring, &completion);
  if (waited < 0) return refused("io_uring_enter", -waited);
  return {};
}

}  // namespace

Status probe_io_uring() {
  io_uring ring{};
  const int made = io_uring_queue_init(kRingEntries, &ring, 0);
  if (made < 0) return refused("io_uring_setup", -made);
  Status status = probe(ring);
  io_uring_queue_exit(&ring);
  return status;
}

Result<IoChoice> choose_io(const std::string& wanted) {
  if (wanted == "epoll") return IoChoice{Io::kEpoll, true, "--io epoll"};
  const Status status = probe_io_uring();
  const bool named = wanted == "io_uring";
  if (status.ok()) return IoChoice{Io::kIoUring, !named, ""};
  if (!named) return IoChoice{Io::kEpoll, true, "no io_uring: " + status.message()};
  return Status(Code::kInvalidArgument, "--io io_uring cannot be had here: " + status.message() +
                                            "; use --io auto or --io epoll");
}

}  // namespace rgpu::server
