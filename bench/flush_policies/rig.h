// Rig: a real rgpu-opserver, a line of any length to it, and recordings replayed over that line.
//
// Threading: one thread uses it; the relay runs on one of its own.
// Lifetime:  the server is a child process that ends with the Rig.
// Errors:    one line that says what to do.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/process/child.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "runtime/recording.h"
#include "runtime/relay.h"
#include "runtime/session.h"

namespace rgpu::bench {

struct Line {
  double rtt_ms = 0;
  double megabits_per_s = 0;  // 0: no cap.
};

// What a recording's main part came to.
struct Run {
  std::chrono::nanoseconds time{0};  // From its first event to the reply to its last wait.
  uint64_t waits = 0;
  uint64_t stalls = 0;
  uint64_t frames = 0;
  uint64_t records = 0;
  uint64_t bytes_out = 0;
  uint64_t bytes_in = 0;
  uint64_t wakeups = 0;
  std::chrono::nanoseconds calls{0};        // Wall time in calls that do not wait.
  std::chrono::nanoseconds calling_cpu{0};  // The calling thread's, gaps not counted.
  // Between the first batch's arrival and the server's last word.
  std::chrono::nanoseconds server_busy{0};
  std::chrono::nanoseconds server_idle{0};
};

class Rig {
 public:
  // `server`: the program; empty: the one of this build.
  [[nodiscard]] static Result<std::unique_ptr<Rig>> start(const std::string& server);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  // In a session of its own. What comes before the recording's main part is played at once, over a
  // line without delay. A recording that does not end in a wait ends in a synchronization here,
  // which is counted.
  [[nodiscard]] Result<Run> run(const Recording& recording, const Line& line,
                                const std::string& policy);

 private:
  Rig() = default;
  [[nodiscard]] Status start_server(const std::string& program);
  [[nodiscard]] Status start_relay();
  [[nodiscard]] RelayFigures set_line(const Line& line);  // The figures of the line before.

  boost::process::child server_;
  uint16_t server_port_ = 0;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::shared_ptr<Relay> relay_;
  std::thread relay_thread_;
};

}  // namespace rgpu::bench
