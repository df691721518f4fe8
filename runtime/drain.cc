#include "runtime/drain.h"

#include <algorithm>

namespace rgpu {
namespace {

using wire::Command;

// A batch with so much payload ends, so that what stands behind it gets its turn.
constexpr uint64_t kBatchPayloadSizeBytesMax = uint64_t{64} << 20;
// A body is limited to 16 MiB and one record or template may still be added to a batch this large.
constexpr uint32_t kBatchSizeBytesLimit = 8u << 20;
static_assert(kBatchSizeBytesLimit + limits::kHandlesPerRecordMax * 10 +
                  limits::kImmediatesSizeBytesMax + limits::kTemplateSizeBytesMax <
              limits::kBodySizeBytesMax);

constexpr uint32_t number(Command command) { return static_cast<uint32_t>(command); }

}  // namespace

void OutgoingBatch::clear() {
  encoder.clear();
  payloads.clear();
  payload_size_bytes = 0;
  stream = 0;
  template_count = 0;
}

Drain::Drain(CommandQueue& queue, uint32_t batch_size_bytes_max)
    : queue_(queue), batch_size_bytes_max_(std::min(batch_size_bytes_max, kBatchSizeBytesLimit)) {}

void Drain::fill(OutgoingBatch& batch, uint32_t records_max) {
  batch.clear();
  // What was issued is read first: the templates, uploads and frees that belong before it are then
  // to be seen as well.
  const uint64_t last = add_templates(batch, queue_.issued());
  uint64_t ring_bytes = 0;
  uint32_t records = 0;
  uint32_t stream = stream_;
  bool forgot = false;
  while (!forgot && add_frees(batch, drained_)) {
    if (drained_ == last || (records_max != 0 && records == records_max)) break;
    RingRecord record;
    RecordRing& ring = find(drained_ + 1, record);
    if (!has_room(batch, record)) break;
    if (records++ == 0) {
      batch.stream = stream = stream_;
    } else if (stream != stream_) {
      stream = stream_;
      const auto immediates = std::as_bytes(std::span(&stream, 1));
      batch.encoder.add_record(number(Command::kStream), 0, {}, immediates);
    }
    add_record(batch, record);
    ring_bytes += RecordRing::record_size_bytes(record);
    forgot = record.number == number(Command::kForgetTemplates);
    ring.pop();
    ++drained_;
  }
  if (forgot) ++template_epoch_;
  if (records == 0) return;
  for (uint32_t index = queue_.used_stream_count(); index-- > 0;) {
    queue_.ring(queue_.used_stream(index))->release();
  }
  queue_.note_drained(drained_, ring_bytes);
}

uint64_t Drain::add_templates(OutgoingBatch& batch, uint64_t issued) {
  const uint64_t defined = queue_.templates_defined();
  while (templates_added_ != defined) {
    if (templates_at_ == templates_.size()) {
      templates_.clear();
      templates_at_ = 0;
      queue_.take_templates(templates_);
    }
    CommandQueue::Template& next = templates_[templates_at_];
    const bool full = batch.template_count != 0 &&
                      batch.encoder.size_bytes() + next.bytes.size() > batch_size_bytes_max_;
    // Nothing that may use it goes into this batch then.
    if (full || next.epoch != template_epoch_) return std::min(issued, next.sequence);
    batch.encoder.add_template(next.bytes);
    next.bytes = {};
    ++batch.template_count;
    ++templates_at_;
    ++templates_added_;
  }
  return issued;
}

bool Drain::add_frees(OutgoingBatch& batch, uint64_t sequence) {
  while (const FreeList::Freed* freed = queue_.frees().front(sequence)) {
    if (!below_limits(batch)) return false;
    batch.encoder.add_record(number(Command::kFree), 0, std::span(&freed->handle, 1), {});
    queue_.frees().pop();
  }
  return true;
}

void Drain::add_record(OutgoingBatch& batch, const RingRecord& record) {
  batch.encoder.add_record(record.number, record.location, record.handles, record.immediates);
  if (record.number != number(Command::kUpload)) return;
  Payload& payload = next_upload();
  batch.encoder.add_segment(payload.bytes.size());
  batch.payload_size_bytes += payload.bytes.size();
  batch.payloads.push_back(std::move(payload));
  ++uploads_at_;
}

bool Drain::below_limits(const OutgoingBatch& batch) const {
  const uint32_t records = batch.encoder.record_count();
  // Room for a kStream before the record.
  return records == 0 ||
         (records + 2 <= limits::kRecordsMax && batch.encoder.size_bytes() < batch_size_bytes_max_);
}

bool Drain::has_room(const OutgoingBatch& batch, const RingRecord& record) {
  if (!below_limits(batch)) return false;
  if (record.number != number(Command::kUpload) || batch.payloads.empty()) return true;
  return batch.payloads.size() < limits::kSegmentsMax &&
         batch.payload_size_bytes + next_upload().bytes.size() <= kBatchPayloadSizeBytesMax;
}

RecordRing& Drain::find(uint64_t sequence, RingRecord& record) {
  // Mostly the stream of the record before.
  RecordRing* ring = queue_.ring(stream_);
  if (ring != nullptr && ring->front(record) && record.sequence == sequence) return *ring;
  const uint32_t count = queue_.used_stream_count();
  for (uint32_t index = 0; index < count; ++index) {
    const uint32_t stream = queue_.used_stream(index);
    ring = queue_.ring(stream);
    if (ring->front(record) && record.sequence == sequence) {
      stream_ = stream;
      return *ring;
    }
  }
  check_failed("an issued record is in no ring", __FILE__, __LINE__);
}

Payload& Drain::next_upload() {
  if (uploads_at_ == uploads_.size()) {
    uploads_.clear();
    uploads_at_ = 0;
    queue_.take_uploads(uploads_);
  }
  RGPU_CHECK(uploads_at_ < uploads_.size());
  return uploads_[uploads_at_];
}

}  // namespace rgpu
