#include "server/compiler_process.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

namespace rgpu::server {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kAnswerSizeBytesMax = 64u << 10;
constexpr int64_t kSliceMs = 50;  // Between two looks at whether it is still wanted.
constexpr rlim_t kFileSizeBytesMax = rlim_t{1} << 30;

Status unavailable(std::string message) { return {Code::kExhausted, std::move(message)}; }

// ---- In the child, between fork and exec: system calls alone ------------------------------------

void write_file(const char* path, const char* text, size_t size_bytes) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!write(file, text, size_bytes);
  close(file);
}

// What the kernel refuses is left out.
void leave_network(const std::string& identity) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0) {
    write_file("/proc/self/setgroups", "deny", 4);
    write_file("/proc/self/uid_map", identity.data(), identity.size());
  } else {
    (void)unshare(CLONE_NEWNET);
  }
}

void allow_beneath(int rules, const char* path, uint64_t access) {
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
  if (rule.parent_fd < 0) return;
  (void)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  close(rule.parent_fd);
}

void allow_writing_only_in(const char* folder) {
  constexpr uint64_t kWrites = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                               LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                               LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                               LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                               LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  landlock_ruleset_attr attributes{};
  attributes.handled_access_fs = kWrites;
  const auto rules =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0));
  if (rules < 0) return;
  allow_beneath(rules, folder, kWrites);
  allow_beneath(rules, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  allow_beneath(rules, "/dev/shm", kWrites);
  (void)syscall(SYS_landlock_restrict_self, rules, 0);
  close(rules);
}

void limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  (void)setrlimit(static_cast<__rlimit_resource_t>(resource), &both);
}

struct Launch {
  int input = -1;
  int output = -1;
  int errors = -1;
  std::string folder;
  std::string identity;  // For /proc/self/uid_map: the user is who he was.
  std::vector<char*> arguments;
  std::vector<char*> environment;
};

[[noreturn]] void become(const Launch& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const sched_param none{};
  (void)sched_setscheduler(0, SCHED_IDLE, &none);
  constexpr int kIdleClass = 3 << 13;
  (void)syscall(SYS_ioprio_set, /*IOPRIO_WHO_PROCESS=*/1, 0, kIdleClass);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, kFileSizeBytesMax);
  dup2(launch.input, STDIN_FILENO);
  dup2(launch.output, STDOUT_FILENO);
  dup2(launch.errors, STDERR_FILENO);
  (void)syscall(SYS_close_range, 3u, ~0u, 0u);
  if (chdir(launch.folder.c_str()) != 0) _exit(126);
  leave_network(launch.identity);
  allow_writing_only_in(launch.folder.c_str());
  sigset_t all;
  sigemptyset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  execve(launch.arguments[0], launch.arguments.data(), launch.environment.data());
  _exit(127);
}

// ---- In the worker ------------------------------------------------------------------------------

std::vector<std::string> environment_in(const std::string& folder) {
  std::vector<std::string> environment = {
      "HOME=" + folder,
      "TMPDIR=" + folder,
      "XDG_CACHE_HOME=" + folder,
      "TORCHINDUCTOR_CACHE_DIR=" + folder + "/inductor",
      "USER=rgpu",
      "LANG=C.UTF-8",
      "OMP_NUM_THREADS=1",
      "MKL_NUM_THREADS=1",
      "TORCH_DEVICE_BACKEND_AUTOLOAD=0",  // It compiles for the server's device, not for ours.
      "PYTHONDONTWRITEBYTECODE=1",
  };
  for (const char* name : {"PATH", "CXX", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"}) {
    if (const char* value = std::getenv(name))
      environment.push_back(std::string(name) + "=" + value);
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> found;
  for (std::string& text : texts) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

// Folders of processes that are no more, whose workers had no time to remove them.
void remove_abandoned(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("compiler.")) continue;
    const pid_t owner = std::atoi(name.c_str() + std::strlen("compiler."));
    if (owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH) continue;
    fs::remove_all(entry.path(), error);
  }
}

struct Pipe {
  int read = -1;
  int write = -1;
  bool open_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  void close_both() const {
    if (read >= 0) close(read);
    if (write >= 0) close(write);
  }
};

}  // namespace

CompilerProcess::CompilerProcess(std::string python, fs::path folder)
    : python_(std::move(python)), folder_(std::move(folder)) {
  remove_abandoned(folder_);
}

CompilerProcess::~CompilerProcess() { stop(); }

Status CompilerProcess::start() {
  std::string name = (folder_ / ("compiler." + std::to_string(getpid()) + ".XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) {
    return unavailable("no folder for the compiler in " + folder_.string() + ": " +
                       std::strerror(errno));
  }
  work_folder_ = name;
  Pipe to;
  Pipe from;
  const int errors = open((work_folder_ / "stderr").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (!to.open_pipe() || !from.open_pipe() || errors < 0) {
    const Status failed =
        unavailable(std::string("the compiler has no pipes: ") + std::strerror(errno));
    to.close_both();
    from.close_both();
    if (errors >= 0) close(errors);
    return failed;
  }
  std::vector<std::string> arguments = {python_, "-P", "-m", "rgpu_compile"};
  std::vector<std::string> environment = environment_in(name);
  const std::string user = std::to_string(geteuid());
  const Launch launch{to.read,
                      from.write,
                      errors,
                      name,
                      user + " " + user + " 1",
                      pointers(arguments),
                      pointers(environment)};
  pid_ = fork();
  if (pid_ == 0) become(launch);
  close(to.read);
  close(from.write);
  close(errors);
  to_ = to.write;
  from_ = from.read;
  received_.clear();
  if (pid_ > 0) return {};
  const Status failed =
      unavailable(std::string("the compiler cannot be started: ") + std::strerror(errno));
  stop();
  return failed;
}

void CompilerProcess::stop() noexcept {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);  // Before it made its group.
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  for (int* end : {&to_, &from_}) {
    if (*end >= 0) close(*end);
    *end = -1;
  }
  std::error_code error;
  if (!work_folder_.empty()) fs::remove_all(work_folder_, error);
  work_folder_.clear();
}

// The last line that it wrote to stderr.
std::string CompilerProcess::last_words() const {
  std::ifstream file(work_folder_ / "stderr");
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  constexpr size_t kLengthMax = 400;
  return last.substr(0, kLengthMax);
}

Result<std::string> CompilerProcess::ask(const std::string& line, std::chrono::seconds timeout,
                                         const std::atomic<bool>& cancelled) {
  if (!running()) RGPU_RETURN_IF_ERROR(start());
  const Clock::time_point deadline = Clock::now() + timeout;
  const auto died = [this](const std::string& how) {
    const std::string words = last_words();
    stop();
    return unavailable(how + (words.empty() ? "" : ": " + words));
  };
  const std::string sent = line + "\n";
  const sigset_t pipe_signal = [] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
  }();
  pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
  if (write(to_, sent.data(), sent.size()) != static_cast<ssize_t>(sent.size())) {
    return died("the compiler process ended");
  }
  for (;;) {
    if (const size_t end = received_.find('\n'); end != std::string::npos) {
      std::string answer = received_.substr(0, end);
      received_.erase(0, end + 1);
      return answer;
    }
    if (received_.size() > kAnswerSizeBytesMax) return died("the compiler's answer has no end");
    if (cancelled) {
      stop();
      return Status(Code::kCancelled, "the session ended");
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return died("the compiler did not answer within " + std::to_string(timeout.count()) + " s");
    }
    pollfd waited{from_, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(std::min<int64_t>(left.count(), kSliceMs))) <= 0)
      continue;
    std::array<char, 4096> chunk{};
    const ssize_t got = read(from_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return died("the compiler process ended");
    received_.append(chunk.data(), static_cast<size_t>(got));
  }
}

}  // namespace rgpu::server
