// CrashReport: the last words of a worker that an op brings down.
//
// A handler for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT (std::terminate ends in it) writes a
// Goodbye frame, encoded beforehand, with the op's name patched in, and then lets the signal end
// the process, so that the listener sees it. Everything the handler does is async-signal-safe.
//
// Threading: install() once, before other threads start. begin_frame()/end_frame() are the network
//            thread's; note_op() and use_thread_stack() are called by each thread that runs ops.
// Lifetime:  process-wide, since signal handlers are; there is one session a worker process.
#pragma once

#include <atomic>

namespace rgpu::server::crash_report {

void install(int socket);

// The network thread brackets each write with these, so that the last words do not land in the
// middle of a frame. begin_frame() is false once a crash is being reported: write nothing then.
[[nodiscard]] bool begin_frame() noexcept;
void end_frame() noexcept;

// Before a worker ends by itself: where a thread crashed, its signal is to end the process.
void let_crash_end_process() noexcept;

// A signal handler needs a stack of its own where the thread's overflowed.
void use_thread_stack();

// The op that this thread runs: a string that lives as long as the op runs. Costs two stores.
inline thread_local const char* thread_op = nullptr;
inline std::atomic<const char*> last_op = nullptr;  // For threads that ATen itself started.
inline void note_op(const char* name) noexcept {
  thread_op = name;
  last_op.store(name, std::memory_order_relaxed);
}

}  // namespace rgpu::server::crash_report
