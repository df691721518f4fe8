#include "tests/server/io_uring_ban.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace rgpu::server::testing {
namespace {

// Whether this descriptor of the process is an epoll set that watches its descriptor 3.
bool watches_socket(const std::filesystem::path& process, const std::string& descriptor) {
  std::ifstream file(process / "fdinfo" / descriptor);
  std::string word;
  int watched = -1;
  while (file >> word) {
    if (word == "tfd:" && file >> watched && watched == 3) return true;
  }
  return false;
}

}  // namespace

void forbid_io_uring() {
  // The filter sees the call's number alone; one architecture is enough for a test.
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    throw std::runtime_error("no seccomp filter can be set");
  }
}

std::string carrier_of(pid_t worker) {
  const std::filesystem::path process = "/proc/" + std::to_string(worker);
  bool io_uring = false;
  bool epoll = false;
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd")) {
    std::error_code ignored;  // A descriptor that was closed meanwhile.
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target == "anon_inode:[io_uring]") io_uring = true;
    if (target == "anon_inode:[eventpoll]") {
      epoll = epoll || watches_socket(process, entry.path().filename());
    }
  }
  if (io_uring && epoll) return "both";
  if (io_uring) return "io_uring";
  return epoll ? "epoll" : "neither";
}

}  // namespace rgpu::server::testing
