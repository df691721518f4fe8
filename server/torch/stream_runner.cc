#include "server/torch/stream_runner.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/torch/device.h"
#include "server/torch/download.h"
#include "server/torch/remote_error.h"
#include "server/torch/switches.h"

namespace rgpu::server {
namespace {

uint64_t read_u64(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

PoisonPtr failed_command(const char* command, uint64_t size_bytes, MemoryLedger& ledger) {
  wire::RemoteError error = to_remote_error(std::current_exception(), ledger);
  error.op = command;
  error.arguments = std::to_string(size_bytes) + " bytes";
  return std::make_shared<Poison>(std::move(error), /*of_a_command=*/true);
}

}  // namespace

void TorchRun::execute() { runner->execute(*this); }

void StreamRunner::execute(TorchRun& run) {
  flush_denormal_here(state_.flush_denormal.load(std::memory_order_relaxed));
  for (const Step& step : run.steps) {
    if (state_.ended.load(std::memory_order_relaxed)) break;
    Status status = state_.trace.on() ? execute_traced(step, run) : execute(step, run);
    if (!status.ok() && !state_.ended.exchange(true)) state_.context.sink.failed(std::move(status));
    // A reply waits for nothing that comes after it. After the last step it goes with the ack.
    if (!replies_.empty() && &step != &run.steps.back()) {
      state_.context.sink.complete(replies_, progress_.applied());
      replies_.clear();
    }
  }
  run.handles.clear();
  if (state_.ended) return;
  const uint64_t applied = progress_.close_one(run.batch->sequence);
  state_.context.sink.complete(replies_, applied);
  replies_.clear();
}

Status StreamRunner::execute_traced(const Step& step, TorchRun& run) {
  const int64_t began_ns = event_time_ns();
  Status status = execute(step, run);
  const auto kind = static_cast<uint32_t>(wire::TraceKind::kExecuted);
  state_.trace.add({step.record, began_ns, event_time_ns(), stream_, kind});
  return status;
}

Status StreamRunner::execute(const Step& step, TorchRun& run) {
  if (step.plan == nullptr) return command(step, run);
  const std::span<SlotPtr> handles(run.handles.data() + step.handles_begin,
                                   step.plan->handle_count);
  const OpRecord record{step.plan, handles, step.immediates, step.location};
  Status status = launcher_.launch(record, replies_);
  for (SlotPtr& handle : handles) handle.reset();
  return status;
}

Status StreamRunner::command(const Step& step, TorchRun& run) {
  SlotPtr slot;
  if (step.has_handle) slot = std::move(run.handles[step.handles_begin]);
  switch (step.command) {
    case wire::Command::kFree:
      return {};  // The table's reference was in `slot`.
    case wire::Command::kAllocate:
      allocate(step, *slot);
      return {};
    case wire::Command::kUpload:
      return upload(step, *slot, run.batch->segments[step.segment]);
    case wire::Command::kFetch:
      return fetch(step, slot);
    case wire::Command::kSync:
      synchronize(device_);
      sync(step);
      return {};
    case wire::Command::kSyncStream:
      synchronize_current_stream(device_);
      sync(step);
      return {};
    case wire::Command::kRecordEvent:
      record_event(*slot);
      return {};
    case wire::Command::kStartTrace:
      state_.trace.start();
      reply_value(read_u64(step.immediates), event_time_ns());
      return {};
    case wire::Command::kStopTrace:
      stop_trace(step, *slot);
      return {};
    case wire::Command::kResize:
      resize(step, *slot);
      return {};
    case wire::Command::kMemory:
      return memory(step);
    default:
      return {};  // The others were done when the batch was decoded.
  }
}

void StreamRunner::allocate(const Step& step, Slot& slot) {
  const uint64_t size_bytes = read_u64(step.immediates);
  try {
    slot.set_storage(state_.allocate(size_bytes, ledger_));
  } catch (...) {
    slot.poison = failed_command("allocate", size_bytes, ledger_);
    state_.errors.add(slot.poison);
  }
}

void StreamRunner::resize(const Step& step, Slot& slot) {
  const uint64_t size_bytes = read_u64(step.immediates);
  if (slot.poison || size_bytes == slot.size_bytes()) return;
  try {
    c10::Storage storage = state_.allocate(size_bytes, ledger_);
    const uint64_t kept_bytes = std::min(size_bytes, slot.size_bytes());
    if (kept_bytes != 0) copy_bytes(storage, 0, slot.storage(), 0, kept_bytes);
    slot.set_storage(std::move(storage));
  } catch (...) {
    slot.poison = failed_command("resize", size_bytes, ledger_);
    state_.errors.add(slot.poison);
  }
}

Status StreamRunner::upload(const Step& step, Slot& slot, Segment& segment) {
  const uint64_t storage_size_bytes = read_u64(step.immediates);
  const uint64_t offset_bytes = read_u64(step.immediates + 8);
  const uint64_t size_bytes = read_u64(step.immediates + 16);
  const bool whole = offset_bytes == 0 && size_bytes == storage_size_bytes;
  if (slot.opaque) return {Code::kInvalidArgument, "upload: to an opaque handle"};
  if (slot.poison && !whole) return {};
  release_for_write(slot, state_, /*keeps_contents=*/size_bytes != slot.size_bytes());
  try {
    if (step.is_new && whole && state_.on_cpu()) {
      (void)ledger_.reserve(size_bytes);
      slot.set_storage(adopt_segment(std::move(segment), state_.allocator));
      return {};
    }
    if (!slot.storage()) slot.set_storage(state_.allocate(storage_size_bytes, ledger_));
    if (offset_bytes > slot.size_bytes() || size_bytes > slot.size_bytes() - offset_bytes) {
      return {Code::kInvalidArgument, "upload: " + std::to_string(size_bytes) + " bytes at " +
                                          std::to_string(offset_bytes) + " of a storage of " +
                                          std::to_string(slot.size_bytes()) + " bytes"};
    }
    if (size_bytes != 0) write_bytes(slot.storage(), offset_bytes, segment.bytes);
    if (size_bytes == slot.size_bytes()) slot.poison.reset();
  } catch (...) {
    slot.poison = failed_command("upload", storage_size_bytes, ledger_);
    state_.errors.add(slot.poison);
  }
  segment = {};
  return {};
}

void StreamRunner::reply_error(uint64_t request, const PoisonPtr& poison) {
  state_.errors.tell(*poison);
  reply_failed(request, poison->error);
}

void StreamRunner::reply_failed(uint64_t request, wire::RemoteError error) {
  wire::Reply failed;
  failed.request = request;
  failed.failed = true;
  failed.error = std::move(error);
  reply(std::move(failed));
}

bool StreamRunner::reply_lost(uint64_t request) {
  const PoisonPtr lost = state_.errors.take_lost();
  if (!lost) return false;
  reply_failed(request, lost_error(*lost));
  return true;
}

Status StreamRunner::fetch(const Step& step, const SlotPtr& slot) {
  const uint64_t request = read_u64(step.immediates);
  const uint64_t offset_bytes = read_u64(step.immediates + 8);
  const uint64_t size_bytes = read_u64(step.immediates + 16);
  if (slot->poison) {
    reply_error(request, slot->poison);
    return {};
  }
  if (slot->opaque) {
    wire::RemoteError error;
    error.message = "this value has another form on the server (" +
                    (slot->opaque_tensor.defined() ? to_string(slot->opaque_tensor) : "undefined") +
                    ") than its shape function promised: only the op's own backward can use it";
    reply_error(request, std::make_shared<Poison>(std::move(error)));
    return {};
  }
  if (offset_bytes > slot->size_bytes() || size_bytes > slot->size_bytes() - offset_bytes) {
    return {Code::kInvalidArgument, "fetch: " + std::to_string(size_bytes) + " bytes at " +
                                        std::to_string(offset_bytes) + " of a storage of " +
                                        std::to_string(slot->size_bytes()) + " bytes"};
  }
  if (reply_lost(request)) return {};
  OutgoingReply answer;
  answer.reply.request = request;
  if (size_bytes == 0) {
    replies_.push_back(std::move(answer));
    return {};
  }
  try {
    if (Download::is_worth_it(*slot, size_bytes)) {
      const auto* start = static_cast<const std::byte*>(slot->storage().data());
      answer.payload = {start + offset_bytes, size_bytes};
      answer.owner = Download::begin(*slot);
    } else {
      auto copy = std::make_shared<std::vector<std::byte>>(size_bytes);
      read_bytes(slot->storage(), offset_bytes, *copy);
      answer.payload = *copy;
      answer.owner = std::move(copy);
    }
    replies_.push_back(std::move(answer));
  } catch (...) {
    const auto poison = failed_command("fetch", size_bytes, ledger_);
    reply_error(request, poison);
  }
  return {};
}

void StreamRunner::sync(const Step& step) {
  const uint64_t request = read_u64(step.immediates);
  if (const PoisonPtr poison = state_.errors.first_unreported()) {
    reply_error(request, poison);
    return;
  }
  wire::Reply done;
  done.request = request;
  reply(std::move(done));
}

void StreamRunner::record_event(Slot& slot) {
  if (device_events_ != nullptr) {
    device_events_->add(slot.event);
    return;
  }
  for (OutgoingReply& answer : slot.event->reach(event_time_ns())) {
    replies_.push_back(std::move(answer));
  }
}

void StreamRunner::reply_value(uint64_t request, int64_t value) {
  wire::Reply answer;
  answer.request = request;
  wire::Arg arg;
  arg.kind = wire::ArgKind::kInt;
  arg.integer = value;
  answer.values.push_back(std::move(arg));
  reply(std::move(answer));
}

void StreamRunner::stop_trace(const Step& step, Slot& slot) {
  const std::vector<wire::TraceEvent> events = state_.trace.stop();
  const auto bytes = std::as_bytes(std::span(events));
  try {
    slot.set_storage(state_.allocate(bytes.size()));
    if (!bytes.empty()) write_bytes(slot.storage(), 0, bytes);
  } catch (...) {
    slot.poison = failed_command("trace", bytes.size(), ledger_);
  }
  reply_value(read_u64(step.immediates), static_cast<int64_t>(bytes.size()));
}

Status StreamRunner::memory(const Step& step) {
  uint32_t device = 0;
  std::memcpy(&device, step.immediates + 8, sizeof device);
  if (device >= state_.ledgers.size()) {
    return {Code::kInvalidArgument, "the memory of device " + std::to_string(device) +
                                        ", but the server has " +
                                        std::to_string(state_.ledgers.size())};
  }
  if (reply_lost(read_u64(step.immediates))) return {};
  MemoryLedger& ledger = state_.ledgers[device];
  const MemoryLedger::Figures held = ledger.figures();
  MemoryFigures there = memory_figures(state_.device(device));
  if (const uint64_t limit = ledger.limit_bytes(); limit != 0) {
    there.total_bytes = std::min(there.total_bytes, limit);
    there.free_bytes = std::min(there.free_bytes, limit - std::min(limit, held.bytes.current));
  }
  wire::Reply figures;
  figures.request = read_u64(step.immediates);
  for (const uint64_t value :
       {held.bytes.current, held.bytes.peak, there.free_bytes, there.total_bytes, held.bytes.added,
        held.bytes.removed, held.storages.current, held.storages.peak, held.storages.added,
        held.storages.removed, there.kept_bytes, held.out_of_memory_count}) {
    wire::Arg arg;
    arg.kind = wire::ArgKind::kInt;
    arg.integer = static_cast<int64_t>(value);
    figures.values.push_back(std::move(arg));
  }
  reply(std::move(figures));
  return {};
}

}  // namespace rgpu::server
