#include "server/torch/batch_decoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/torch/switches.h"
#include "wire/limits.h"
#include "wire/op_template.h"
#include "wire/stream.h"

namespace rgpu::server {
namespace {

// Long batches are cut, so that execution starts before the whole batch is decoded.
constexpr size_t kStepsPerRunMax = 256;
// Of batches that streams with queues of their own have not executed.
constexpr size_t kQueuedSizeBytesMax = size_t{64} << 20;

using wire::Command;

constexpr uint32_t number(Command command) { return static_cast<uint32_t>(command); }

bool is_done_when_decoded(Command command) {
  return command == Command::kStream || command == Command::kForgetTemplates ||
         command == Command::kWaitEvent || command == Command::kQueryEvent ||
         command == Command::kSwitches;
}

bool is_of_event(Command command) {
  return command == Command::kRecordEvent || command == Command::kWaitEvent ||
         command == Command::kQueryEvent;
}

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status unknown_handle(wire::Handle handle) {
  return invalid("unknown handle " + std::to_string(handle));
}

Status is_event(wire::Handle handle) {
  return invalid("handle " + std::to_string(handle) + " is an event");
}

}  // namespace

BatchDecoder::BatchDecoder(EngineState& state, Executor& executor)
    : state_(state), executor_(executor), queued_bytes_(kQueuedSizeBytesMax) {}

void BatchDecoder::decode(std::unique_ptr<IncomingBatch> batch) {
  if (state_.ended) return;
  const uint64_t sequence = batch->sequence;
  if (Status status = set_stream(batch->stream); !status.ok()) {
    end_session(status, sequence);
    return;
  }
  next_segment_ = 0;
  progress_.open(sequence);
  queued_bytes_.add(batch->size_bytes);
  batch_ = {batch.release(), [this](IncomingBatch* done) {
              const size_t size_bytes = done->size_bytes;
              delete done;
              queued_bytes_.remove(size_bytes);
            }};
  start_run();
  Status status = decode_records(*batch_);
  submit_run(status.ok());
  batch_.reset();
  if (!status.ok()) end_session(status, sequence);
}

void BatchDecoder::end_session(const Status& reason, uint64_t sequence) {
  if (state_.ended.exchange(true)) return;
  state_.context.sink.failed(reason.with_context("batch " + std::to_string(sequence)));
}

void BatchDecoder::start_run() {
  run_ = std::make_unique<TorchRun>();
  run_->id = ++last_run_id_;
  run_->stream = stream_;
  run_->batch = batch_;
  run_->plans = plans_;
  std::unique_ptr<StreamRunner>& runner = runners_[stream_];
  if (!runner) {
    runner = std::make_unique<StreamRunner>(state_, progress_, device_events(), stream_);
    if (several_streams_ && stream_ != first_stream_ && untracked_run_id_ != 0) {
      run_after({first_stream_, untracked_run_id_});
    }
  }
  run_->runner = runner.get();
}

DeviceEvents* BatchDecoder::device_events() {
  if (state_.on_cpu()) return nullptr;
  const uint32_t device = wire::device_of_stream(stream_);
  std::unique_ptr<DeviceEvents>& events = device_events_[device];
  if (!events) {
    events = std::make_unique<DeviceEvents>(state_.device(device), state_.context.sink, progress_);
  }
  return events.get();
}

void BatchDecoder::submit_run(bool is_last) {
  // The batch's own count, taken when it was opened, is the last run's.
  if (!is_last) progress_.add_run(run_->batch->sequence);
  executor_.submit(std::move(run_));
}

void BatchDecoder::cut_run() {
  submit_run(false);
  start_run();
}

void BatchDecoder::drain() {
  submit_run(false);
  executor_.drain();
  start_run();
}

// ---- Streams ------------------------------------------------------------------------------------

Status BatchDecoder::set_stream(uint32_t stream) {
  const size_t devices = state_.ledgers.size();
  if (wire::device_of_stream(stream) >= devices) {
    return invalid("stream " + std::to_string(stream) + " is one of device " +
                   std::to_string(wire::device_of_stream(stream)) + ", but the server has " +
                   std::to_string(devices) + (devices == 1 ? " device" : " devices"));
  }
  stream_ = stream;
  if (last_run_id_ == 0) first_stream_ = stream;
  if (several_streams_ || stream == first_stream_) return {};
  several_streams_ = true;
  untracked_run_id_ = last_run_id_;
  return {};
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

Status BatchDecoder::decode_records(IncomingBatch& batch) {
  wire::BatchReader& reader = batch.reader;
  RGPU_RETURN_IF_ERROR(define_templates(reader));
  const uint32_t count = reader.record_count();
  for (uint32_t i = 0; i < count; ++i) {
    const Result<wire::BatchReader::Record> record = reader.next();
    if (!record) return record.error();
    if (record->number == number(Command::kForgetTemplates) && i + 1 != count) {
      return invalid("templates are forgotten before the batch's last record");
    }
    const Status status = decode_record(batch, *record);
    if (!status.ok()) return status.with_context("record " + std::to_string(i));
  }
  if (next_segment_ != reader.segments().size()) return invalid("a payload segment has no upload");
  if (state_.trace.on()) {
    const auto kind = static_cast<uint32_t>(wire::TraceKind::kReceived);
    state_.trace.add({records_, batch.received_ns, event_time_ns(), batch.stream, kind});
  }
  return reader.finish();
}

Status BatchDecoder::decode_record(IncomingBatch& batch, wire::BatchReader::Record record) {
  // What the CPU's streams hold is known when all have done what came before, too; an accelerator's
  // memory is taken when a record is launched, on this thread.
  const bool is_of_all = record.number == number(Command::kSync) ||
                         (record.number == number(Command::kMemory) && state_.on_cpu());
  if (several_streams_ && is_of_all) drain();
  Step step;
  step.location = record.location;
  if (record.number != number(Command::kFree) && record.number != number(Command::kStream)) {
    step.record = ++records_;
  }
  step.handles_begin = static_cast<uint32_t>(run_->handles.size());
  RGPU_RETURN_IF_ERROR(record.number >= wire::kFirstTemplate
                           ? decode_op(batch.reader, record.number, step)
                           : decode_command(batch, record.number, step));
  if (step.plan == nullptr && is_done_when_decoded(step.command)) return {};
  run_->steps.push_back(step);
  // Whoever waits for an event waits for nothing that comes after it.
  const bool is_event = step.plan == nullptr && step.command == Command::kRecordEvent;
  if (run_->steps.size() == kStepsPerRunMax || (is_event && several_streams_)) cut_run();
  return {};
}

Status BatchDecoder::define_templates(wire::BatchReader& reader) {
  const uint32_t count = reader.template_count();
  if (count > limits::kTemplatesMax - plans_->size()) return invalid("too many templates");
  for (uint32_t i = 0; i < count; ++i) {
    const Result<wire::OpTemplate> op = wire::decode_op_template(reader.template_bytes(i));
    if (!op) return op.error().with_context("template " + std::to_string(plans_->size()));
    auto plan = make_op_plan(*op, {geometries_, state_.device_type, state_.client_torch_version});
    if (!plan) return plan.error();
    plans_->push_back(*std::move(plan));
  }
  return {};
}

Status BatchDecoder::add_new_handle(wire::Handle handle) {
  if (handles_.size() >= limits::kLiveHandlesMax) return invalid("too many live handles");
  SlotPtr slot = c10::make_intrusive<Slot>(stream_, state_.ledger_of(stream_));
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
    if ((*slot)->event) return is_event(record_handles_[i]).with_context(plan.full_name);
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
  if (step.command == Command::kStream) return decode_stream(step);
  if (step.command == Command::kSwitches) return decode_switches(step);
  if (step.command == Command::kForgetTemplates) {
    plans_ = std::make_shared<OpPlans>();
    geometries_.clear();
    return {};
  }
  if (step.command == Command::kUpload) {
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

Status BatchDecoder::decode_stream(const Step& step) {
  uint32_t stream = 0;
  std::memcpy(&stream, step.immediates, sizeof stream);
  if (stream == stream_) return {};
  submit_run(false);
  const Status status = set_stream(stream);
  start_run();
  return status;
}

// Kernels read them when they are called: what came before on any stream has been called, and
// nothing of what comes after. Only the CPU's streams have threads of their own.
Status BatchDecoder::decode_switches(const Step& step) {
  const std::span<const std::byte, sizeof(wire::Switches)> bytes(step.immediates,
                                                                 sizeof(wire::Switches));
  const Result<wire::Switches> switches = wire::decode_switches(bytes);
  if (!switches) return switches.error();
  if (several_streams_ && state_.on_cpu()) {
    drain();
  } else {
    cut_run();
  }
  apply_switches(*switches);
  state_.flush_denormal = (switches->flags & wire::Switches::kFlushDenormal) != 0;
  return {};
}

// ---- Events -------------------------------------------------------------------------------------

Status BatchDecoder::decode_event(wire::Handle handle, Step& step) {
  if (step.command == Command::kRecordEvent) return record_event(handle);
  const SlotPtr* found = handles_.find(handle);
  if (found == nullptr) return unknown_handle(handle);
  if (!(*found)->event) return invalid("handle " + std::to_string(handle) + " is no event");
  if (step.command == Command::kQueryEvent) return query_event(*(*found)->event, step);
  const Slot::Use recorded = (*found)->last_write;
  if (recorded.stream == stream_) return {};
  cut_run();  // What this stream had before need not wait.
  run_after(recorded);
  return {};
}

Status BatchDecoder::record_event(wire::Handle handle) {
  const SlotPtr* known = handles_.find(handle);
  if (known != nullptr) {
    if (!(*known)->event) return invalid("handle " + std::to_string(handle) + " is no event");
    (void)handles_.erase(handle);
  }
  RGPU_RETURN_IF_ERROR(add_new_handle(handle));
  Slot& slot = *run_->handles.back();
  slot.event = std::make_shared<EventMark>();
  slot.last_write = {stream_, run_->id};
  return {};
}

Status BatchDecoder::query_event(EventMark& mark, const Step& step) {
  uint64_t request = 0;
  std::memcpy(&request, step.immediates, sizeof request);
  Result<std::optional<OutgoingReply>> answer = mark.ask(request);
  if (!answer) return answer.error();
  if (*answer) state_.context.sink.complete({&**answer, 1}, progress_.applied());
  return {};
}

Status BatchDecoder::resolve_command_handle(wire::Handle handle, Step& step) {
  if (step.command == Command::kFree) {
    SlotPtr slot = handles_.erase(handle);
    if (!slot) return unknown_handle(handle).with_context("free");
    run_->handles.push_back(std::move(slot));
    return {};
  }
  if (is_of_event(step.command)) return decode_event(handle, step);
  const SlotPtr* slot = handles_.find(handle);
  const bool may_be_new = step.command == Command::kUpload;
  if (step.command == Command::kStopTrace) return add_new_handle(handle);
  if (step.command == Command::kAllocate || (may_be_new && slot == nullptr)) {
    step.is_new = true;
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, step.immediates, sizeof size_bytes);
    if (size_bytes > limits::kStorageSizeBytesMax) return invalid("a storage over the limit");
    return add_new_handle(handle);
  }
  if (slot == nullptr) return unknown_handle(handle);
  if ((*slot)->event) return is_event(handle);
  if (step.command == Command::kResize) {
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, step.immediates, sizeof size_bytes);
    if (size_bytes > limits::kStorageSizeBytesMax) return invalid("a storage over the limit");
  }
  note_use(**slot, true);  // A fetch too: it marks the slot as being downloaded.
  run_->handles.push_back(*slot);
  return {};
}

}  // namespace rgpu::server
