// Session: one client's connection to an rgpu server, its rings and what it still waits for.
//
// Threading: every public function may be called from any thread but the session's own I/O thread.
//            Appends are ordered by one uncontended lock; only the I/O thread touches the socket.
// Lifetime:  records hold handles, never pointers; handles and immediates are copied before
//            append() returns. Payloads are owned by the session until they are sent, a reply's
//            destination until the reply came or the session ended, also when its waiter gave up.
// Errors:    kDisconnected, with the reason, from every call once the session is lost;
//            kCancelled when a WaitObserver said stop. An op's own failure comes inside a Reply.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/flush_policy.h"
#include "runtime/tracer.h"
#include "wire/batch.h"
#include "wire/messages.h"
#include "wire/status.h"

namespace rgpu {

using wire::Handle;

struct SessionOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 9720;
  int socket = -1;  // A connected stream socket to use instead; the session closes it.
  std::string client_version;
  std::string torch_version;
  std::optional<wire::CudaHello> cuda;  // A session of CUDA calls instead of ops.
  std::string flush_policy = "adaptive";
  std::shared_ptr<FlushPolicy> policy;  // Instead of the named one; for this session alone.
  std::string record_path;              // Records the session into this file (recorder.h), whatever
  bool record_bytes = false;            // RGPU_RECORD says; with the bytes of uploads.
  uint32_t ring_size_bytes = 1u << 20;  // Per stream; a power of two.
  uint64_t staged_size_bytes_max = uint64_t{256} << 20;  // Upload bytes not yet sent; one larger
                                                         // upload alone is let through.
  uint32_t batch_size_bytes_max = 256u << 10;            // Columns of one batch.
  std::chrono::milliseconds connect_timeout{5000};       // TCP connect, and then the handshake.
  std::chrono::milliseconds stall_timeout{60000};        // A full ring with no progress for so long
                                                         // loses the session.
};

struct Record {
  uint32_t number = 0;    // wire::Command or a template's number.
  uint32_t location = 0;  // Where in the program; the session only carries it.
  std::span<const Handle> handles;
  std::span<const std::byte> immediates;
};

class UploadFeed;

// Bytes to send and what keeps them alive and as they are until they are sent. Without an owner
// they are the caller's, and upload() returns when they are sent or copied.
struct Payload {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  std::shared_ptr<UploadFeed> feed{};  // The session's own use.
};

// Where a reply's payload goes and what keeps that memory alive. Empty: no payload is expected.
struct Destination {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

// What the thread that waits does around its wait (give up the GIL, look for Ctrl-C).
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void before_wait() {}
  virtual void after_wait() {}
  // Called every 50 ms of a wait. False: give up; the call returns kCancelled.
  [[nodiscard]] virtual bool keep_waiting() { return true; }
  // After each wait that SessionStats counts, with its time.
  virtual void counted(std::chrono::nanoseconds /*waited*/) noexcept {}
};

// Counters since the session began. `waits` counts every time a calling thread stood still for the
// server, `stalls` (part of waits) those for room in a ring or in the staging bound.
struct SessionStats {
  uint64_t records = 0;  // Appended, frees and template definitions not counted.
  uint64_t frees = 0;
  uint64_t templates = 0;
  uint64_t frames = 0;  // Sent.
  uint64_t waits = 0;
  uint64_t stalls = 0;
  uint64_t bytes_out = 0;  // All bytes written to the socket.
  uint64_t bytes_in = 0;
  uint64_t payload_bytes_out = 0;  // The part of bytes_out that is tensor bytes.
  uint64_t payload_bytes_in = 0;
  uint64_t payload_bytes_staged = 0;     // Of uploads so far; payload_bytes_out gets there.
  uint64_t payload_bytes_requested = 0;  // Of fetches so far; payload_bytes_in gets there.
  uint64_t wakeups = 0;         // System calls the issuing threads made to wake the I/O thread.
  uint64_t wait_ns = 0;         // Time stood still in waits.
  uint64_t server_busy_ns = 0;  // As of the last reply.
  uint64_t server_idle_ns = 0;
};

class Session {
 public:
  // Returns when TCP is connected; the handshake goes on beside the first records, so that starting
  // costs no round trip. Errors name host and port in one line.
  [[nodiscard]] static Result<std::shared_ptr<Session>> connect(const SessionOptions& options);
  ~Session();  // Closes if close() was not called.
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits for the server's answer to the handshake (counted as a wait if it has not come yet).
  [[nodiscard]] Result<wire::HelloReply> server_info(WaitObserver& observer);

  // The first of `count` consecutive new handles. Wait-free; costs no message.
  [[nodiscard]] Handle new_handles(uint32_t count) noexcept;

  // Appends to `stream`'s ring. About 100 ns; no allocation, no system call while the I/O thread is
  // awake. Waits (counted) while the ring is full.
  [[nodiscard]] Status append(uint32_t stream, const Record& record, WaitObserver& observer);
  // The template's number; records that use it must be appended afterwards. The caller forgets
  // before it defines more than limits::kTemplatesMax.
  [[nodiscard]] Result<uint32_t> define_template(std::span<const std::byte> encoded_op_template);
  // Numbering starts anew. The caller keeps other threads from appending records meanwhile.
  [[nodiscard]] Status forget_templates(WaitObserver& observer);
  // Command::kUpload. Waits (counted) while more than staged_size_bytes_max are staged. For what
  // becomes of bytes without an owner see upload_feed.h. kExhausted: no memory for the copy.
  [[nodiscard]] Status upload(uint32_t stream, Handle handle, uint64_t storage_size_bytes,
                              uint64_t offset_bytes, Payload payload, WaitObserver& observer);
  // Takes effect after everything appended so far. Never waits, never throws.
  void free(Handle handle) noexcept;

  // A reply is awaited in three steps: new_request, append a record whose immediates carry the
  // number, wait. wait() ends the request in every case. At most 1024 at once (kExhausted).
  [[nodiscard]] Result<uint64_t> new_request(Destination destination = {});
  void abandon_request(uint64_t request) noexcept;  // When the record could not be appended.
  void disown_request(uint64_t request) noexcept;   // Nobody will wait: the reply is discarded.
  // It counts as one wait even when the reply is here already: counts are the program's, not the
  // machine's.
  [[nodiscard]] Result<wire::Reply> wait(uint64_t request, WaitObserver& observer);
  // The reply if it is here, or why the session was lost; either ends the request. nullopt: not
  // yet. Never waits, counts no wait, and sends nothing: see flush().
  [[nodiscard]] std::optional<Result<wire::Reply>> poll(uint64_t request);
  // What was issued so far is sent soon, whatever the flush policy. Does not wait for it.
  void flush() noexcept;
  // How many records were appended to the stream.
  [[nodiscard]] uint64_t appended(uint32_t stream) const noexcept;
  // Command::kSync and its reply.
  [[nodiscard]] Result<wire::Reply> sync(WaitObserver& observer);
  // Command::kSyncStream and its reply.
  [[nodiscard]] Result<wire::Reply> sync_stream(uint32_t stream, WaitObserver& observer);

  [[nodiscard]] Status set_flush_policy(std::string_view name);
  void set_flush_policy(std::shared_ptr<FlushPolicy> policy);  // Not null; this session's alone.
  [[nodiscard]] std::string flush_policy() const;
  void set_tracer(std::shared_ptr<Tracer> tracer);  // Null: none.
  [[nodiscard]] SessionStats stats() const;
  [[nodiscard]] bool alive() const noexcept;  // One relaxed load.
  [[nodiscard]] Status status() const;        // Ok, or why the session is lost.

  // Sends what is pending and a goodbye, at most `timeout`, and joins the I/O thread. Idempotent.
  void close(std::chrono::milliseconds timeout = std::chrono::milliseconds{2000}) noexcept;
  // In a forked child: the session is unusable there, and its destructor touches no socket.
  void abandon_after_fork() noexcept;

 private:
  struct State;
  explicit Session(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace rgpu
