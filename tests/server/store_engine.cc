#include "tests/server/store_engine.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace rgpu::server::testing {
namespace {

uint64_t word(std::span<const std::byte> immediates, size_t index) {
  uint64_t value = 0;
  std::memcpy(&value, immediates.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Result<Segment> StoreEngine::allocate_segment(uint64_t size_bytes) {
  const std::shared_ptr<std::byte[]> bytes =
      std::make_shared_for_overwrite<std::byte[]>(size_bytes);
  return Segment{{bytes.get(), size_bytes}, bytes};
}

Status StoreEngine::run(IncomingBatch& batch, std::vector<OutgoingReply>& replies) {
  size_t next_segment = 0;
  for (uint32_t i = 0; i < batch.reader.record_count(); ++i) {
    const Result<wire::BatchReader::Record> record = batch.reader.next();
    if (!record) return record.error();
    const Result<wire::RecordShape> shape = wire::command_shape(record->number);
    if (!shape) return shape.error();
    std::array<wire::Handle, 1> handles{};
    Status status = batch.reader.read_handles(std::span(handles).first(shape->handle_count));
    if (!status.ok()) return status;
    const auto immediates = batch.reader.read_immediates(shape->immediates_size_bytes);
    if (!immediates) return immediates.error();
    OutgoingReply reply;
    switch (static_cast<wire::Command>(record->number)) {
      case wire::Command::kUpload:
        segments_[handles[0]] = std::move(batch.segments.at(next_segment++));
        break;
      case wire::Command::kFree:
        segments_.erase(handles[0]);
        break;
      case wire::Command::kFetch:
        reply.owner = segments_.at(handles[0]).owner;
        reply.payload = segments_.at(handles[0]).bytes.subspan(word(*immediates, 1));
        reply.payload = reply.payload.first(word(*immediates, 2));
        [[fallthrough]];
      case wire::Command::kSync:
        reply.reply.request = word(*immediates, 0);
        replies.push_back(std::move(reply));
        break;
      case wire::Command::kResize:
        std::abort();
      default:
        break;
    }
  }
  return batch.reader.finish();
}

void StoreEngine::apply(std::unique_ptr<IncomingBatch> batch) {
  std::vector<OutgoingReply> replies;
  Status status = run(*batch, replies);
  const uint64_t sequence = batch->sequence;
  batch.reset();
  if (status.ok()) {
    context_.sink.complete(replies, sequence);
  } else {
    context_.sink.failed(std::move(status));
  }
}

}  // namespace rgpu::server::testing
