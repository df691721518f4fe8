// Which of epoll and io_uring carries a session, also where a seccomp filter forbids io_uring.

#include "server/io_choice.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/server/io_uring_ban.h"
#include "tests/server/raw_client.h"
#include "tests/server/worker_process.h"

namespace rgpu::server::testing {
namespace {

// In a process of its own, since a filter is for good. Returns what `check` makes of it.
std::string where_forbidden(const std::function<std::string()>& check) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    forbid_io_uring();
    const std::string answer = check();
    const ssize_t written = write(ends[1], answer.data(), answer.size());
    _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer(1000, '\0');
  const ssize_t size_bytes = read(ends[0], answer.data(), answer.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  answer.resize(static_cast<size_t>(std::max<ssize_t>(size_bytes, 0)));
  return answer;
}

TEST(IoChoice, EpollWhenAskedFor) {
  const Result<IoChoice> choice = choose_io("epoll");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->io, Io::kEpoll);
  EXPECT_EQ(choice->reason, "--io epoll");
}

TEST(IoChoice, AutoTakesWhatTheProbeFinds) {
  const Result<IoChoice> choice = choose_io("auto");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->io == Io::kIoUring, probe_io_uring().ok());
  EXPECT_EQ(choice->reason.empty(), choice->io == Io::kIoUring);
}

TEST(IoChoice, AutoIsEpollWhereIoUringIsForbidden) {
  const std::string answer = where_forbidden([] {
    const IoChoice choice = choose_io("auto").value();
    return (choice.io == Io::kEpoll ? "epoll: " : "io_uring: ") + choice.reason;
  });
  EXPECT_EQ(answer.rfind("epoll: no io_uring: io_uring_setup: Operation not permitted", 0), 0u)
      << answer;
}

TEST(IoChoice, IoUringByNameIsAnErrorWhereItIsForbidden) {
  const std::string answer =
      where_forbidden([] { return choose_io("io_uring").error().message(); });
  EXPECT_EQ(answer.rfind("--io io_uring cannot be had here: io_uring_setup: ", 0), 0u) << answer;
  EXPECT_NE(answer.find("use --io auto or --io epoll"), std::string::npos) << answer;
}

TEST(IoChoice, AWorkerThatIsRefusedItsRingFallsBackAndWorks) {
  WorkerProcess worker({.io = {Io::kIoUring, true, ""}, .forbid_io_uring = true});
  RawClient client(worker.port());
  ASSERT_EQ(client.greet().code, Code::kOk);
  EXPECT_EQ(carrier_of(worker.pid()), "epoll");
  BatchBuilder batch;
  batch.sync(7);
  client.send_batch(batch.finish());
  EXPECT_EQ(client.receive_reply().request, 7u);
}

TEST(IoChoice, AWorkerThatMayNotFallBackEnds) {
  WorkerProcess worker({.io = {Io::kIoUring, false, ""}, .forbid_io_uring = true});
  RawClient client(worker.port());
  EXPECT_THROW((void)client.greet(), std::runtime_error);
  EXPECT_EQ(worker.wait(), EXIT_FAILURE);
}

}  // namespace
}  // namespace rgpu::server::testing
