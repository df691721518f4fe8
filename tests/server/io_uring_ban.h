// What tells whether io_uring carries a session: a seccomp filter that forbids it, as containers
// have one, and /proc.
//
// Errors: std::runtime_error when the kernel refuses.
#pragma once

#include <sys/types.h>

#include <string>

namespace rgpu::server::testing {

// For this process and all it starts, for good: io_uring_setup() fails with EPERM. Makes no
// allocation, so it may be called between fork() and exec().
void forbid_io_uring();

// "io_uring", "epoll", or what else /proc tells of the process's socket 3, a worker's.
[[nodiscard]] std::string carrier_of(pid_t worker);

}  // namespace rgpu::server::testing
