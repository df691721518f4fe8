// IoChoice: whether sessions run over io_uring or over epoll, and why.
//
// Threading: pure functions of the process's rights; call them before there are threads.
// Errors:    kInvalidArgument when io_uring was asked for by name and cannot be had.
#pragma once

#include <cstdint>
#include <string>

#include "wire/status.h"

namespace rgpu::server {

enum class Io : uint8_t { kEpoll, kIoUring };

struct IoChoice {
  Io io = Io::kEpoll;
  bool may_fall_back = true;  // When a worker cannot have io_uring after all.
  std::string reason;         // Why it is epoll; empty with io_uring.
};

// Makes a ring as large as a session's, asks it for every operation a session uses, and runs one.
// What stands in the way, if anything does: the sysctl, seccomp, the memlock limit, an old kernel.
[[nodiscard]] Status probe_io_uring();

// `wanted`: "auto", "io_uring" or "epoll".
[[nodiscard]] Result<IoChoice> choose_io(const std::string& wanted);

}  // namespace rgpu::server
