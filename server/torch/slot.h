// Slot: what a handle stands for on the server: a storage, an opaque value, an event, or an error.
//
// Threading: the uses are the decode thread's, `home_stream` is constant. Everything else belongs
// to the
//            stream that runs a record with this slot; the executor orders streams that share one.
// Lifetime:  reference-counted: the handle table holds one until the handle is freed, every queued
//            record one until it has run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/event_mark.h"
#include "server/torch/geometry.h"
#include "server/torch/memory_ledger.h"
#include "wire/messages.h"

namespace rgpu::server {

// An op's failure, shared by all that depends on it.
struct Poison {
  explicit Poison(wire::RemoteError failure, bool of_a_command = false)
      : error(std::move(failure)), is_unplaced(of_a_command) {}
  const wire::RemoteError error;
  const bool is_unplaced;              // Of a command, which has no program line.
  std::atomic<bool> reported = false;  // Some reply has told the client.
};
using PoisonPtr = std::shared_ptr<Poison>;

// The errors that no reply has told yet, oldest first. Any thread.
class ErrorLog {
 public:
  void add(PoisonPtr poison);
  [[nodiscard]] PoisonPtr first_unreported();
  // The oldest that nobody can ask for any more: whatever it poisoned was freed or overwritten
  // unread. It and all others of its program line count as reported from now on: what a loop does
  // wrong is told once, not at each of the program's next waits. One load where there are no
  // errors.
  [[nodiscard]] PoisonPtr take_lost();
  // The client is being told of it. Of running out of memory it is told once for all that failed up
  // to now, so that a program that catches it, frees and goes on does not hear of it again.
  void tell(Poison& poison);

 private:
  void forget_reported();

  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::deque<PoisonPtr> errors_;
};

// The graph that a forward with grad left behind, for rgpu::graph_backward.
struct KeptGraph {
  std::vector<at::Tensor> leaves;   // One for each kRequiresGrad argument, in order.
  std::vector<at::Tensor> outputs;  // Every tensor returned with a floating or complex dtype.
};

class StoredGraph;

class Slot final : public c10::intrusive_ptr_target {
 public:
  Slot(uint32_t stream, MemoryLedger& ledger) : home_stream(stream), ledger_(ledger) {}
  ~Slot() override { account(0); }

  [[nodiscard]] const c10::Storage& storage() const noexcept { return storage_; }
  [[nodiscard]] uint64_t size_bytes() const { return storage_ ? storage_.nbytes() : 0; }
  void set_storage(c10::Storage storage);
  // `value` is not what was promised; only the op's own backward can use it. May be undefined.
  void set_opaque(at::Tensor value);
  // The handle stands for a graph of so many bytes.
  void set_program(std::shared_ptr<StoredGraph> graph_program, uint64_t size_bytes) {
    opaque = true;
    program = std::move(graph_program);
    account(size_bytes);
  }
  // How many references to the storage are this slot's.
  [[nodiscard]] size_t own_references() const noexcept;
  // `tensor` is exactly `geometry` at offset 0 of a storage of its own.
  void set_tensor(at::Tensor tensor, const Geometry& geometry);
  // A tensor over the storage. The geometry lies within it (Geometry::fits()).
  [[nodiscard]] const at::Tensor& tensor(const Geometry& geometry, int64_t offset);
  void forget_tensor() {
    cached_.reset();
    cached_geometry_ = 0;
  }
  // After an op that may have changed the ready tensor itself (resize_, set_): keep it only if not.
  void recheck_tensor(const Geometry& geometry);

  // Which runs used it since a second stream came into use. Decode thread's.
  struct Use {
    uint32_t stream = 0;
    uint64_t run_id = 0;  // 0: none.
  };
  Use last_write;
  std::vector<Use> reads;  // Since last_write; at most one for each stream.

  const uint32_t home_stream;  // Only this one uses the ready tensor.
  PoisonPtr poison;
  bool opaque = false;
  at::Tensor opaque_tensor;  // May be undefined, as the op's result was.
  std::shared_ptr<KeptGraph> graph;
  std::shared_ptr<StoredGraph> program;  // Of rgpu::graph_find and graph_load.
  // The stored graph whose call made this value, by its id, and how it was run. 0: none.
  uint64_t made_by = 0;
  bool made_compiled = false;
  std::shared_ptr<EventMark> event;  // Of kRecordEvent, each of which makes a slot anew.
  // Of the `info` of a factorization: the results beside it, which _linalg_check_errors judges.
  std::vector<c10::intrusive_ptr<Slot>> siblings;
  // How many downloads of this storage are not sent yet: see download.h.
  std::shared_ptr<std::atomic<uint32_t>> downloads;

 private:
  void account(uint64_t size_bytes) noexcept {
    ledger_.replace(std::exchange(accounted_bytes_, size_bytes), size_bytes);
  }

  MemoryLedger& ledger_;  // Of the device it was made on.
  c10::Storage storage_;
  at::Tensor cached_;  // The tensor used last: most are used with one geometry only.
  uint64_t cached_geometry_ = 0;
  int64_t cached_offset_ = 0;
  uint64_t accounted_bytes_ = 0;
};
using SlotPtr = c10::intrusive_ptr<Slot>;

}  // namespace rgpu::server
