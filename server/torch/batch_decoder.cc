#include "server/torch/batch_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wire/limits.h"
#include "wire/op_template.h"

namespace rgpu::server {
namespace {

// Long batches are cut, so that execution starts before the whole batch is decoded.
constexpr size_t kStepsPerRunMax = 256;
constexpr size_t kQueuedBatchSizeBytesMax = size_t{4} << 20;

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status unknown_handle(wire::Handle handle) {
  return invalid("unknown handle " + std::to_string(handle));
}

}  // namespace

BatchDecoder::BatchDecoder(EngineState& state, Executor& executor)
    : state_(state), executor_(executor) {}

void BatchDecoder::decode(std::unique_ptr<IncomingBatch> batch) {
  if (state_.ended) return;
  const uint64_t sequence = batch->sequence;
  set_stream(batch->stream);
  next_segment_ = 0;
  progress_.open(sequence);
  const std::shared_ptr<IncomingBatch> shared = std::move(batch);
  start_run(shared);
  Status status = decode_records(shared);
  submit_run(status.ok());
  // The queue that bounds what is under way ends here, where streams have queues of their own.
  if (several_streams_ && shared->size_bytes > kQueuedBatchSizeBytesMax) executor_.drain();
  if (!status.ok() && !state_.ended.exchange(true)) {
    state_.context.sink.failed(status.with_context("batch " + std::to_string(sequence)));
  }
}

void BatchDecoder::start_run(const std::shared_ptr<IncomingBatch>& batch) {
  run_ = std::make_unique<TorchRun>();
  run_->id = ++last_run_id_;
  run_->stream = stream_;
  run_->batch = batch;
  run_->plans = plans_;
  std::unique_ptr<StreamRunner>& runner = runners_[stream_];
  if (!runner) {
    runner = std::make_unique<StreamRunner>(state_, progress_, stream_);
    if (several_streams_ && stream_ != first_stream_ && untracked_run_id_ != 0) {
      run_after({first_stream_, untracked_run_id_});
    }
  }
  run_->runner = runner.get();
}

void BatchDecoder::submit_run(bool is_last) {
  // The batch's own count, taken when it was opened, is the last run's.
  if (!is_last) progress_.add_run(run_->batch->sequence);
  executor_.submit(std::move(run_));
}

// ---- Streams ------------------------------------------------------------------------------------

void BatchDecoder::set_stream(uint32_t stream) {
  stream_ = stream;
  if (last_run_id_ == 0) first_stream_ = stream;
  if (several_streams_ || stream == first_stream_) return;
  several_streams_ = true;
  untracked_run_id_ = last_run_id_;
}

void BatchDecoder::run_after(const Slot::Use& use) {
  for (Run::After& after : run_->after) {
    if (after.stream != use.stream) continue;
    after.id = std::max(after.id, use.run_id);
    return;
  }
  run_->after.push_back({use.stream, use.run_id});
}

void BatchDecoder::note_use(Slot& slot, bool writes) {
  if (!several_streams_) return;
  const Slot::Use use{stream_, run_->id};
  if (slot.last_write.run_id != 0 && slot.last_write.stream != stream_) run_after(slot.last_write);
  if (writes) {
    for (const Slot::Use& read : slot.reads) {
      if (read.stream != stream_) run_after(read);
    }
    slot.reads.clear();
    slot.last_write = use;
    return;
  }
  for (Slot::Use& read : slot.reads) {
    if (read.stream != stream_) continue;
    read = use;
    return;
  }
  slot.reads.push_back(use);
}

// ---- Records ------------------------------------------------------------------------------------

Status BatchDecoder::decode_records(const std::shared_ptr<IncomingBatch>& batch) {
  wire::BatchReader& reader = batch->reader;
  RGPU_RETURN_IF_ERROR(define_templates(reader));
  const uint32_t count = reader.record_count();
  for (uint32_t i = 0; i < count; ++i) {
    const Result<wire::BatchReader::Record> record = reader.next();
    if (!record) return record.error();
    if (record->number == static_cast<uint32_t>(wire::Command::kForgetTemplates)) {
      if (i + 1 != count) return invalid("templates are forgotten before the batch's last record");
      plans_ = std::make_shared<OpPlans>();
      geometries_.clear();
      continue;
    }
    const uint32_t stream = stream_;
    if (several_streams_ && record->number == static_cast<uint32_t>(wire::Command::kSync)) {
      submit_run(false);
      executor_.drain();
      start_run(batch);
    }
    Step step;
    step.location = record->location;
    step.handles_begin = static_cast<uint32_t>(run_->handles.size());
    const Status status = record->number >= wire::kFirstTemplate
                              ? decode_op(reader, record->number, step)
                              : decode_command(*batch, record->number, step);
    if (!status.ok()) return status.with_context("record " + std::to_string(i));
    if (stream == stream_) run_->steps.push_back(step);
    if (stream == stream_ && run_->steps.size() < kStepsPerRunMax) continue;
    submit_run(false);
    start_run(batch);
  }
  if (next_segment_ != reader.segments().size()) return invalid("a payload segment has no upload");
  return reader.finish();
}

Status BatchDecoder::define_templates(wire::BatchReader& reader) {
  const uint32_t count = reader.template_count();
  if (count > limits::kTemplatesMax - plans_->size()) return invalid("too many templates");
  for (uint32_t i = 0; i < count; ++i) {
    const Result<wire::OpTemplate> op = wire::decode_op_template(reader.template_bytes(i));
    if (!op) return op.error().with_context("template " + std::to_string(plans_->size()));
    auto plan = make_op_plan(*op, {geometries_, state_.device.type(), client_torch_version_});
    if (!plan) return plan.error();
    plans_->push_back(*std::move(plan));
  }
  return {};
}

Status BatchDecoder::add_new_handle(wire::Handle handle) {
  if (handles_.size() >= limits::kLiveHandlesMax) return invalid("too many live handles");
  SlotPtr slot = c10::make_intrusive<Slot>(stream_, state_.ledger);
  if (!handles_.insert(handle, slot)) {
    return invalid("handle " + std::to_string(handle) + " is in use already");
  }
  note_use(*slot, true);
  run_->handles.push_back(std::move(slot));
  return {};
}

Status BatchDecoder::decode_op(wire::BatchReader& reader, uint32_t number, Step& step) {
  const uint32_t index = number - wire::kFirstTemplate;
  if (index >= plans_->size()) return invalid("unknown template " + std::to_string(index));
  const OpPlan& plan = *(*plans_)[index];
  step.plan = &plan;
  record_handles_.resize(plan.handle_count);
  RGPU_RETURN_IF_ERROR(reader.read_handles(record_handles_));
  const auto immediates = reader.read_immediates(plan.immediates_size_bytes);
  if (!immediates) return immediates.error();
  step.immediates = immediates->data();
  for (uint32_t i = 0; i < plan.input_count; ++i) {
    const SlotPtr* slot = handles_.find(record_handles_[i]);
    if (slot == nullptr) return unknown_handle(record_handles_[i]).with_context(plan.full_name);
    run_->handles.push_back(*slot);
    // A kept graph's buffers are freed by its backward.
    note_use(**slot, plan.input_written[i] != 0 || plan.builtin != OpPlan::Builtin::kNone);
  }
  for (uint32_t i = plan.input_count; i < plan.handle_count; ++i) {
    const Status status = add_new_handle(record_handles_[i]);
    if (!status.ok()) return status.with_context(plan.full_name);
  }
  return {};
}

Status BatchDecoder::decode_command(IncomingBatch& batch, uint32_t number, Step& step) {
  const Result<wire::RecordShape> shape = wire::command_shape(number);
  if (!shape) return shape.error();
  step.command = static_cast<wire::Command>(number);
  const auto immediates = batch.reader.read_immediates(shape->immediates_size_bytes);
  if (!immediates) return immediates.error();
  step.immediates = immediates->data();
  if (step.command == wire::Command::kStream) {
    uint32_t stream = 0;
    std::memcpy(&stream, step.immediates, sizeof stream);
    if (stream >= limits::kStreamsMax) return invalid("a stream over the limit");
    set_stream(stream);
    return {};
  }
  if (step.command == wire::Command::kUpload) {
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, step.immediates + 16, sizeof size_bytes);
    if (next_segment_ >= batch.segments.size() ||
        batch.segments[next_segment_].bytes.size() != size_bytes) {
      return invalid("an upload without a payload segment of its size");
    }
    step.segment = next_segment_++;
  }
  if (shape->handle_count == 0) return {};
  step.has_handle = true;
  wire::Handle handle = 0;
  RGPU_RETURN_IF_ERROR(batch.reader.read_handles({&handle, 1}));
  return resolve_command_handle(handle, step);
}

Status BatchDecoder::resolve_command_handle(wire::Handle handle, Step& step) {
  if (step.command == wire::Command::kFree) {
    SlotPtr slot = handles_.erase(handle);
    if (!slot) return unknown_handle(handle).with_context("free");
    run_->handles.push_back(std::move(slot));
    return {};
  }
  const SlotPtr* slot = handles_.find(handle);
  const bool may_be_new = step.command == wire::Command::kUpload;
  if (step.command == wire::Command::kAllocate || (may_be_new && slot == nullptr)) {
    step.is_new = true;
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, step.immediates, sizeof size_bytes);
    if (size_bytes > limits::kStorageSizeBytesMax) return invalid("a storage over the limit");
    return add_new_handle(handle);
  }
  if (slot == nullptr) return unknown_handle(handle);
  if (step.command == wire::Command::kResize) {
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, step.immediates, sizeof size_bytes);
    if (size_bytes > limits::kStorageSizeBytesMax) return invalid("a storage over the limit");
  }
  note_use(**slot, true);  // A fetch too: it marks the slot as being downloaded.
  run_->handles.push_back(*slot);
  return {};
}

}  // namespace rgpu::server
