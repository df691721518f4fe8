// Session: the worker's network side. Reads frames, hands batches on, writes acks and replies.
//
// Two implementations, one source: asio_session.cc is compiled once over epoll and once over
// io_uring. All of a worker that names Asio types is there; here is none.
//
// Threading: run() is the network thread. complete() and failed() may be called from any thread.
// Lifetime:  what SessionParts names outlives the session. Destroyed after run() returned, or
// never. Errors:    whatever a correct client cannot have sent ends the session with a Goodbye that
// says
//            why, followed by a lingering close so that the client gets to read it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "server/batch_queue.h"
#include "server/engine.h"
#include "server/work_clock.h"

namespace rgpu::server {

using SessionId = std::array<std::byte, 16>;
[[nodiscard]] std::string to_hex(const SessionId& id);

struct SessionParts {
  int socket;  // Its preamble was read. The session closes it.
  SessionId id;
  BatchQueue& queue;
  WorkClock& clock;
};

class Session : public EngineSink {
 public:
  // Returns when the session is over and its last bytes are out or given up.
  virtual void run(Engine& engine) = 0;
};

// Called in the process that runs the session, after its fork, with SIGTERM and SIGINT blocked.
// kExhausted when the kernel refuses what the session needs; the socket is as it was then.
namespace epoll {
[[nodiscard]] Result<std::shared_ptr<Session>> make_session(const SessionParts& parts);
}
namespace io_uring {
[[nodiscard]] Result<std::shared_ptr<Session>> make_session(const SessionParts& parts);
}

}  // namespace rgpu::server
