#include "server/worker.h"

#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "server/crash_report.h"

namespace rgpu::server {
namespace {

constexpr int kSocket = 3;

void decode_loop(BatchQueue& queue, Engine& engine, WorkClock& clock) {
  crash_report::use_thread_stack();
  while (std::unique_ptr<IncomingBatch> batch = queue.pop()) {
    clock.begin();
    engine.apply(std::move(batch));
    clock.end();
  }
}

Result<std::shared_ptr<Session>> make_session(const SessionParts& parts, const IoChoice& io) {
  std::string reason = io.reason;
  if (io.io == Io::kIoUring) {
    Result<std::shared_ptr<Session>> session = io_uring::make_session(parts);
    if (session) spdlog::info("session {}: over io_uring", to_hex(parts.id));
    if (session || !io.may_fall_back) return session;
    reason = "no io_uring: " + session.error().message();
  }
  spdlog::info("session {}: over epoll ({})", to_hex(parts.id), reason);
  return epoll::make_session(parts);
}

}  // namespace

void run_worker(int socket, const SessionId& id, const IoChoice& io,
                const EngineFactory& make_engine) {
  if (socket != kSocket) dup2(socket, kSocket);
  close_range(kSocket + 1, ~0u, 0);
  crash_report::install(kSocket);
  crash_report::use_thread_stack();
  int exit_status = EXIT_SUCCESS;
  try {
    BatchQueue queue({});
    WorkClock clock;
    const Result<std::shared_ptr<Session>> made = make_session({kSocket, id, queue, clock}, io);
    if (!made) throw std::runtime_error(made.error().message());
    const std::shared_ptr<Session>& session = *made;
    const std::unique_ptr<Engine> engine = make_engine({*session, clock});
    std::thread decoder(decode_loop, std::ref(queue), std::ref(*engine), std::ref(clock));
    session->run(*engine);
    crash_report::let_crash_end_process();
    // An op may still be running. Nothing here is worth waiting for it: the process ends.
    spdlog::default_logger()->flush();
    _exit(EXIT_SUCCESS);
  } catch (const std::exception& exception) {
    spdlog::error("session {}: {}", to_hex(id), exception.what());
    exit_status = EXIT_FAILURE;
  }
  _exit(exit_status);
}

}  // namespace rgpu::server
