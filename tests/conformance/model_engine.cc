#include "tests/conformance/model_engine.h"

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/runtime/scripted_server.h"
#include "wire/batch.h"

namespace rgpu::testing {

using server::OutgoingReply;
using wire::Command;

struct ModelEngine::Record {
  ReceivedRecord wire;
  std::string op;  // Empty: a command.
};

struct ModelEngine::RecordRun final : server::Run {
  void execute() override {
    std::vector<OutgoingReply> replies;
    call(replies);
    call = {};
    engine->context_.sink.complete(replies, engine->progress_.close_one(sequence));
  }
  ModelEngine* engine = nullptr;
  uint64_t sequence = 0;
  std::function<void(std::vector<OutgoingReply>&)> call;
};

namespace {

OutgoingReply reply_to(uint64_t request) {
  OutgoingReply outgoing;
  outgoing.reply.request = request;
  return outgoing;
}

OutgoingReply bytes_of(uint64_t request, const std::vector<uint64_t>& words, uint64_t offset_bytes,
                       uint64_t size_bytes) {
  OutgoingReply outgoing = reply_to(request);
  const auto all = std::as_bytes(std::span(words)).subspan(offset_bytes, size_bytes);
  auto copy = std::make_shared<std::vector<std::byte>>(all.begin(), all.end());
  outgoing.payload = *copy;
  outgoing.owner = std::move(copy);
  return outgoing;
}

}  // namespace

ModelEngine::ModelEngine(const server::EngineContext& context)
    : context_(context),
      executor_(std::make_unique<server::ThreadExecutor>(context.clock, [] {})) {}

ModelEngine::~ModelEngine() { executor_.reset(); }  // Its threads use the rest.

Result<server::Segment> ModelEngine::allocate_segment(uint64_t size_bytes) {
  const auto bytes = std::make_shared_for_overwrite<std::byte[]>(size_bytes);
  return server::Segment{{bytes.get(), size_bytes}, bytes};
}

void ModelEngine::apply(std::unique_ptr<server::IncomingBatch> batch) {
  sequence_ = batch->sequence;
  stream_ = batch->stream;
  progress_.open(sequence_);
  try {
    decode(*batch);
  } catch (const std::exception& exception) {
    context_.sink.failed({Code::kInvalidArgument, exception.what()});
  }
  std::vector<OutgoingReply> none;
  context_.sink.complete(none, progress_.close_one(sequence_));
}

void ModelEngine::decode(const server::IncomingBatch& batch) {
  std::vector<wire::OpTemplate> ops = templates_;
  ReceivedBatch received = decode_batch(batch.body.bytes(), templates_);
  ops.insert(ops.end(), received.templates.begin(), received.templates.end());
  size_t next_segment = 0;
  for (ReceivedRecord& next : received.records) {
    Record record{std::move(next), {}};
    if (record.wire.number >= wire::kFirstTemplate) {
      record.op = ops.at(record.wire.number - wire::kFirstTemplate).name;
    } else if (record.wire.is(Command::kStream)) {
      uint32_t stream = 0;
      std::memcpy(&stream, record.wire.immediates.data(), sizeof stream);
      stream_ = stream;
      after_.clear();
      continue;
    } else if (record.wire.is(Command::kWaitEvent)) {
      wait_for_event(record);
      continue;
    } else if (record.wire.is(Command::kQueryEvent)) {
      query_event(record);
      continue;
    } else if (record.wire.is(Command::kForgetTemplates)) {
      continue;
    } else if (record.wire.is(Command::kSync)) {
      executor_->drain();
    }
    server::Segment segment;
    if (record.wire.is(Command::kUpload)) segment = batch.segments.at(next_segment++);
    submit(record, segment);
  }
}

std::vector<ModelEngine::CellPtr> ModelEngine::cells_of(const Record& record) {
  std::vector<CellPtr> cells;
  for (const wire::Handle& handle : record.wire.handles) {
    if (record.wire.is(Command::kFree)) {
      const auto found = cells_.find(handle);
      if (found == cells_.end()) throw std::runtime_error("free of an unknown handle");
      cells_.erase(found);
      return {};
    }
    const bool last = &handle == &record.wire.handles.back();
    const bool makes = record.wire.is(Command::kRecordEvent) || record.wire.is(Command::kUpload) ||
                       record.wire.is(Command::kAllocate) || (last && record.op == "model::axpy");
    CellPtr& cell = cells_[handle];
    if (!cell && !makes) throw std::runtime_error("unknown handle " + std::to_string(handle));
    if (!cell || record.wire.is(Command::kRecordEvent)) cell = std::make_shared<Cell>();
    cells.push_back(cell);
  }
  return cells;
}

void ModelEngine::wait_for_event(const Record& record) {
  for (const auto& [stream, run] : cells_of(record).front()->last_run) {
    if (stream != stream_) after_.push_back({stream, run});
  }
}

void ModelEngine::query_event(const Record& record) {
  Result<std::optional<OutgoingReply>> answer =
      cells_of(record).front()->event->ask(record.wire.word(0));
  if (!answer) throw std::runtime_error(answer.error().message());
  if (*answer) context_.sink.complete({&**answer, 1}, progress_.applied());
}

void ModelEngine::submit(const Record& record, const server::Segment& segment) {
  const std::vector<CellPtr> cells = cells_of(record);
  const bool is_event = record.wire.is(Command::kRecordEvent);
  if (is_event) cells[0]->event = std::make_shared<server::EventMark>();
  auto run = std::make_unique<RecordRun>();
  run->engine = this;
  run->sequence = sequence_;
  run->id = ++last_run_id_;
  run->stream = stream_;
  run->after = std::exchange(after_, {});
  for (const CellPtr& cell : cells) {
    for (const auto& [stream, id] : cell->last_run) {
      if (stream != stream_) run->after.push_back({stream, id});
    }
    cell->last_run[stream_] = run->id;
  }
  const ReceivedRecord& wire = record.wire;
  if (record.op == "model::axpy") {
    run->call = [cells, k = wire.word(0)](auto&) {
      cells[2]->words.resize(cells[0]->words.size());
      for (size_t i = 0; i < cells[0]->words.size(); ++i) {
        cells[2]->words[i] = k * cells[0]->words[i] + cells[1]->words.at(i);
      }
    };
  } else if (record.op == "model::add_") {
    run->call = [cells, k = wire.word(0)](auto&) {
      for (uint64_t& word : cells[0]->words) word += k;
    };
  } else if (wire.is(Command::kUpload)) {
    run->call = [cells, segment, size = wire.word(0), offset = wire.word(1)](auto&) {
      cells[0]->words.resize(size / sizeof(uint64_t));
      if (segment.bytes.empty()) return;
      std::memcpy(reinterpret_cast<std::byte*>(cells[0]->words.data()) + offset,
                  segment.bytes.data(), segment.bytes.size());
    };
  } else if (wire.is(Command::kFetch)) {
    run->call = [cells, request = wire.word(0), offset = wire.word(1),
                 size = wire.word(2)](auto& replies) {
      replies.push_back(bytes_of(request, cells[0]->words, offset, size));
    };
  } else if (is_event) {
    run->call = [event = cells[0]->event](auto& replies) { replies = event->reach(1); };
  } else if (wire.is(Command::kSync) || wire.is(Command::kSyncStream)) {
    run->call = [request = wire.word(0)](auto& replies) { replies.push_back(reply_to(request)); };
  } else {
    run->call = [](auto&) {};
  }
  progress_.add_run(sequence_);
  executor_->submit(std::move(run));
}

}  // namespace rgpu::testing
