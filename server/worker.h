// Worker: the process of one session, from the fork to its end.
//
// Threading: the network thread is the process's first; the decode thread is started here, further
//            ones by the engine.
#pragma once

#include "server/io_choice.h"
#include "server/session.h"
#include "server/worker_context.h"

namespace rgpu::server {

// In a process that was just forked. Takes over `socket`, closes every other descriptor but the
// standard ones, and ends the process when the session is over.
[[noreturn]] void run_worker(int socket, const SessionId& id, const IoChoice& io,
                             const EngineFactory& make_engine);

}  // namespace rgpu::server
