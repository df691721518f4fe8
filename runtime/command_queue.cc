#include "runtime/command_queue.h"

#include <algorithm>
#include <string>

namespace rgpu {
namespace {

RingRecord ring_record(const Record& record, uint64_t sequence) {
  return {sequence, record.number, record.location, record.handles, record.immediates};
}

}  // namespace

CommandQueue::CommandQueue(const SessionOptions& options, std::shared_ptr<FlushPolicy> policy)
    : ring_size_bytes_(options.ring_size_bytes),
      staged_size_bytes_max_(options.staged_size_bytes_max),
      policy_(std::move(policy)) {}

CommandQueue::~CommandQueue() {
  for (std::atomic<RecordRing*>& ring : rings_) delete ring.load(std::memory_order_relaxed);
}

RecordRing& CommandQueue::ring_for_append(uint32_t stream) {
  if (RecordRing* ring = rings_[stream].load(std::memory_order_relaxed)) return *ring;
  auto* ring = new RecordRing(ring_size_bytes_);
  rings_[stream].store(ring, std::memory_order_release);
  const uint32_t used = used_stream_count_.load(std::memory_order_relaxed);
  used_streams_[used] = static_cast<uint16_t>(stream);
  used_stream_count_.store(used + 1, std::memory_order_release);
  return *ring;
}

CommandQueue::Outcome CommandQueue::try_append(uint32_t stream, const Record& record,
                                               Payload* payload) {
  if (stream >= limits::kStreamsMax || record.handles.size() > limits::kHandlesPerRecordMax ||
      record.immediates.size() > limits::kImmediatesSizeBytesMax) {
    return Outcome::kRefused;
  }
  const std::lock_guard lock(issue_mutex_);
  RecordRing& ring = ring_for_append(stream);
  const uint64_t sequence = issued_.load(std::memory_order_relaxed) + 1;
  const RingRecord ringed = ring_record(record, sequence);
  const uint64_t size = RecordRing::record_size_bytes(ringed);
  if (size > ring.record_size_bytes_max()) return Outcome::kRefused;
  if (!ring.try_append(ringed)) return Outcome::kFull;
  if (payload != nullptr) uploads_.push_back(std::move(*payload));
  if (record.number == static_cast<uint32_t>(wire::Command::kForgetTemplates)) {
    live_templates_ = 0;
    ++template_epoch_;
  }
  issued_bytes_.store(issued_bytes_.load(std::memory_order_relaxed) + size,
                      std::memory_order_relaxed);
  issued_.store(sequence, std::memory_order_release);
  return should_wake() ? Outcome::kAppendedWake : Outcome::kAppended;
}

bool CommandQueue::should_wake() {
  if (!parked_ && doze_size_bytes_ == UINT64_MAX) return false;
  const FlushState state = flush_state();
  if (state.pending_size_bytes < doze_size_bytes_ && !(parked_ && policy_->should_wake(state))) {
    return false;
  }
  parked_ = false;
  doze_size_bytes_ = UINT64_MAX;
  return true;
}

Status CommandQueue::check(uint32_t stream, const Record& record) const {
  const auto over = [](const char* what, uint64_t value, uint64_t limit) {
    return Status(Code::kInvalidArgument, std::string("a record's ") + what + ", " +
                                              std::to_string(value) + ", is over the limit of " +
                                              std::to_string(limit));
  };
  if (stream >= limits::kStreamsMax) return over("stream", stream, limits::kStreamsMax - 1);
  if (record.handles.size() > limits::kHandlesPerRecordMax) {
    return over("number of handles", record.handles.size(), limits::kHandlesPerRecordMax);
  }
  if (record.immediates.size() > limits::kImmediatesSizeBytesMax) {
    return over("immediates in bytes", record.immediates.size(), limits::kImmediatesSizeBytesMax);
  }
  const uint64_t size = RecordRing::record_size_bytes(ring_record(record, 0));
  if (size > ring_size_bytes_ / 2) {
    return Status(Code::kInvalidArgument,
                  "a record of " + std::to_string(record.handles.size()) + " handles and " +
                      std::to_string(record.immediates.size()) + " bytes of immediates takes " +
                      std::to_string(size) + " bytes, more than half of the ring of " +
                      std::to_string(ring_size_bytes_) + " bytes");
  }
  return {};
}

Result<uint32_t> CommandQueue::define_template(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > limits::kTemplateSizeBytesMax) {
    return Status(Code::kInvalidArgument,
                  "an op template of " + std::to_string(bytes.size()) + " bytes; 1 to " +
                      std::to_string(limits::kTemplateSizeBytesMax) + " are allowed");
  }
  std::vector<std::byte> copy(bytes.begin(), bytes.end());
  const std::lock_guard lock(issue_mutex_);
  if (live_templates_ == limits::kTemplatesMax) {
    return Status(Code::kExhausted, std::to_string(limits::kTemplatesMax) +
                                        " op templates are defined, which is the most: forget "
                                        "them first");
  }
  templates_.push_back({issued_.load(std::memory_order_relaxed), template_epoch_, std::move(copy)});
  templates_defined_.fetch_add(1, std::memory_order_release);
  return wire::kFirstTemplate + live_templates_++;
}

bool CommandQueue::try_stage(uint64_t size_bytes) noexcept {
  uint64_t staged = staged_bytes_.load(std::memory_order_relaxed);
  do {
    if (staged != 0 && staged + size_bytes > staged_size_bytes_max_) return false;
  } while (!staged_bytes_.compare_exchange_weak(staged, staged + size_bytes));
  staged_total_.fetch_add(size_bytes, std::memory_order_relaxed);
  return true;
}

void CommandQueue::unstage(uint64_t size_bytes) noexcept {
  staged_total_.fetch_sub(size_bytes, std::memory_order_relaxed);
  release_staged(size_bytes);
}

bool CommandQueue::request_flush() noexcept {
  const std::lock_guard lock(issue_mutex_);
  const uint64_t issued = issued_.load(std::memory_order_relaxed);
  flush_sequence_.store(issued, std::memory_order_relaxed);
  if (issued == drained_.load(std::memory_order_relaxed)) return false;
  parked_ = false;
  doze_size_bytes_ = UINT64_MAX;
  return true;
}

uint64_t CommandQueue::room_epoch() const {
  const std::lock_guard lock(room_mutex_);
  return room_epoch_;
}

void CommandQueue::wait_for_room(uint64_t seen, std::chrono::milliseconds slice) {
  std::unique_lock lock(room_mutex_);
  room_changed_.wait_for(lock, slice, [&] { return room_epoch_ != seen; });
}

void CommandQueue::set_policy(std::shared_ptr<FlushPolicy> policy) {
  const std::lock_guard lock(issue_mutex_);
  policy_.swap(policy);
  policy_version_.fetch_add(1, std::memory_order_release);
}

std::shared_ptr<FlushPolicy> CommandQueue::policy() const {
  const std::lock_guard lock(issue_mutex_);
  return policy_;
}

uint32_t CommandQueue::policy_version() const noexcept {
  return policy_version_.load(std::memory_order_acquire);
}

FlushState CommandQueue::flush_state() const noexcept {
  // What was drained is read first: it never passes what was issued before it.
  const uint64_t drained = drained_.load(std::memory_order_acquire);
  const uint64_t drained_bytes = drained_bytes_.load(std::memory_order_relaxed);
  FlushState state;
  state.pending_records = static_cast<uint32_t>(issued_.load(std::memory_order_acquire) - drained);
  state.pending_size_bytes = issued_bytes_.load(std::memory_order_relaxed) - drained_bytes +
                             staged_bytes_.load(std::memory_order_relaxed);
  state.batches_in_flight = batches_in_flight_.load(std::memory_order_relaxed);
  state.waiter = flush_sequence_.load(std::memory_order_relaxed) > drained;
  return state;
}

bool CommandQueue::try_park() {
  const std::lock_guard lock(issue_mutex_);
  const FlushState state = flush_state();
  if (state.waiter || (state.pending_records != 0 && policy_->should_wake(state))) return false;
  parked_ = true;
  return true;
}

bool CommandQueue::try_doze(uint64_t size_bytes) {
  const std::lock_guard lock(issue_mutex_);
  const FlushState state = flush_state();
  if (state.waiter || state.pending_size_bytes >= size_bytes) return false;
  doze_size_bytes_ = size_bytes;
  return true;
}

void CommandQueue::unpark() {
  const std::lock_guard lock(issue_mutex_);
  parked_ = false;
  doze_size_bytes_ = UINT64_MAX;
}

RecordRing* CommandQueue::ring(uint32_t stream) const noexcept {
  return rings_[stream].load(std::memory_order_acquire);
}

uint32_t CommandQueue::used_stream_count() const noexcept {
  return used_stream_count_.load(std::memory_order_acquire);
}

uint64_t CommandQueue::templates_defined() const noexcept {
  return templates_defined_.load(std::memory_order_acquire);
}

void CommandQueue::take_templates(std::vector<Template>& taken) {
  const std::lock_guard lock(issue_mutex_);
  taken.swap(templates_);
}

void CommandQueue::take_uploads(std::vector<Payload>& taken) {
  const std::lock_guard lock(issue_mutex_);
  taken.swap(uploads_);
}

void CommandQueue::note_drained(uint64_t sequence, uint64_t ring_bytes) noexcept {
  drained_bytes_.store(drained_bytes_.load(std::memory_order_relaxed) + ring_bytes,
                       std::memory_order_relaxed);
  drained_.store(sequence, std::memory_order_release);
}

void CommandQueue::announce_room() {
  {
    const std::lock_guard lock(room_mutex_);
    ++room_epoch_;
  }
  room_changed_.notify_all();
}

void CommandQueue::release_staged(uint64_t size_bytes) noexcept {
  staged_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
}

void CommandQueue::note_in_flight(uint32_t batches) noexcept {
  batches_in_flight_.store(batches, std::memory_order_relaxed);
}

}  // namespace rgpu
