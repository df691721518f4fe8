// ScriptedServer: the server's side of one connection, every step of which a test takes by hand.
//
// Threading: none of its own; blocking sockets, so that a test first proves what has not happened,
//            then triggers it, then reads it.
// Errors:    every read has a deadline of ten seconds; what goes wrong throws, which fails the
// test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wire/batch.h"
#include "wire/frame.h"
#include "wire/messages.h"
#include "wire/op_template.h"

namespace rgpu::testing {

struct ReceivedRecord {
  uint32_t number = 0;
  uint32_t location = 0;
  std::vector<wire::Handle> handles;
  std::vector<std::byte> immediates;

  [[nodiscard]] bool is(wire::Command command) const {
    return number == static_cast<uint32_t>(command);
  }
  [[nodiscard]] uint64_t word(size_t index) const;  // Of the immediates, as u64.
};

struct ReceivedBatch {
  wire::FrameHeader header;
  std::vector<wire::OpTemplate> templates;
  std::vector<ReceivedRecord> records;
  std::vector<uint64_t> segment_sizes;
  std::vector<std::vector<std::byte>> segments;  // As far as they were read.
};

// The templates and records of a batch's body. `templates`: those since they were last forgotten.
[[nodiscard]] ReceivedBatch decode_batch(std::span<const std::byte> body,
                                         std::vector<wire::OpTemplate>& templates);

class ScriptedServer {
 public:
  ScriptedServer();  // Listens on a free port of the loopback interface.
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  [[nodiscard]] uint16_t port() const noexcept { return port_; }
  // A port on which nobody listens.
  [[nodiscard]] static uint16_t closed_port();

  void accept();
  wire::Hello read_hello();  // Preamble and Hello.
  void greet();              // accept(), read_hello() and a HelloReply.
  wire::FrameHeader read_header();
  // The next frame, which must be a batch.
  ReceivedBatch read_batch();
  // The same, its payload into `scratch`, which must be large enough. For benches.
  ReceivedBatch read_batch_into(std::span<std::byte> scratch);
  // Reads batches until `count` records that are no kFree and no kStream came; all records.
  std::vector<ReceivedRecord> read_records(size_t count);
  // Reads batches until this command comes; its record.
  ReceivedRecord read_until(wire::Command command);
  // Greets, then discards and acknowledges every batch until a goodbye. For benches.
  void discard();
  // Nothing has arrived and is unread at this moment.
  [[nodiscard]] bool quiet() const;
  std::vector<std::byte> read_bytes(size_t size_bytes);
  void read_into(std::span<std::byte> target);
  // The client closed its side, after whatever it still sent.
  void read_to_end();

  void hello_reply(const wire::HelloReply& reply);
  void ack(uint64_t sequence);
  void ack_all() { ack(batches_); }
  void reply(const wire::Reply& reply, std::span<const std::byte> payload = {});
  void goodbye(Code code, const std::string& message);
  void send(std::span<const std::byte> bytes);
  void send(const std::string& text);
  void close();
  void reset();  // Closes with a TCP reset.

  [[nodiscard]] uint64_t batches() const noexcept { return batches_; }

 private:
  ReceivedBatch read_batch_body();
  void send_frame(wire::FrameKind kind, std::span<const std::byte> body,
                  std::span<const std::byte> payload = {});

  int listener_ = -1;
  int socket_ = -1;
  uint16_t port_ = 0;
  uint64_t batches_ = 0;
  std::vector<wire::OpTemplate> templates_;
};

// A template whose records carry so many handles and 8 bytes of immediates for each scalar.
[[nodiscard]] std::vector<std::byte> make_template(const std::string& name, uint32_t handles,
                                                   uint32_t scalars = 0);

}  // namespace rgpu::testing
