// Drain: makes batches of what waits in a CommandQueue, in the order it was issued.
//
// Within a batch: templates first, then records in session order whatever their stream, each free
// after the last record that may use its handle and before later ones. A kForgetTemplates ends its
// batch, and templates defined after it wait for a later one.
//
// Threading: the I/O thread alone.
// Lifetime:  a batch owns its payloads; nothing in it refers to the rings.
// Errors:    none.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/command_queue.h"
#include "wire/batch.h"

namespace rgpu {

struct OutgoingBatch {
  wire::BatchEncoder encoder;
  std::vector<Payload> payloads;  // The segments, in order.
  uint64_t payload_size_bytes = 0;
  uint32_t stream = 0;  // Of the first record.
  uint64_t template_count = 0;

  void clear();
  [[nodiscard]] bool empty() const noexcept {
    return encoder.record_count() == 0 && template_count == 0;
  }
};

class Drain {
 public:
  Drain(CommandQueue& queue, uint32_t batch_size_bytes_max);

  // Fills `batch` anew, with `records_max` records at most (0: as many as fit; frees not counted).
  void fill(OutgoingBatch& batch, uint32_t records_max);
  // The last record that a batch has taken.
  [[nodiscard]] uint64_t drained() const noexcept { return drained_; }

 private:
  // Returns the sequence up to which records may go into the batch.
  uint64_t add_templates(OutgoingBatch& batch, uint64_t issued);
  // False: the batch is full and frees are left that belong before the next record.
  [[nodiscard]] bool add_frees(OutgoingBatch& batch, uint64_t sequence);
  void add_record(OutgoingBatch& batch, const RingRecord& record);
  [[nodiscard]] bool below_limits(const OutgoingBatch& batch) const;
  [[nodiscard]] bool has_room(const OutgoingBatch& batch, const RingRecord& record);
  // The ring whose front is record `sequence`, which was issued.
  [[nodiscard]] RecordRing& find(uint64_t sequence, RingRecord& record);
  [[nodiscard]] Payload& next_upload();

  CommandQueue& queue_;
  const uint32_t batch_size_bytes_max_;
  uint64_t drained_ = 0;
  uint32_t stream_ = 0;  // Of the last record found.
  uint64_t template_epoch_ = 0;
  uint64_t templates_added_ = 0;
  std::vector<CommandQueue::Template> templates_;
  size_t templates_at_ = 0;
  std::vector<Payload> uploads_;
  size_t uploads_at_ = 0;
};

}  // namespace rgpu
