#include "wire/batch.h"

#include <array>
#include <cstring>
#include <string>

#include "rgpu_generated.h"
#include "wire/limits.h"
#include "wire/switches.h"
#include "wire/tables.h"
#include "wire/varint.h"

namespace rgpu::wire {
namespace {

constexpr std::array<RecordShape, 16> kCommandShapes = {{
    {1, 0},         // kFree
    {1, 8},         // kAllocate
    {1, 24},        // kUpload
    {1, 24, true},  // kFetch
    {0, 8, true},   // kSync
    {0, 4},         // kStream
    {0, 0},         // kForgetTemplates
    {1, 8},         // kResize
    {0, 12, true},  // kMemory
    {1, 0},         // kRecordEvent
    {1, 0},         // kWaitEvent
    {1, 8, true},   // kQueryEvent
    {0, 8, true},   // kSyncStream
    {0, 8, true},   // kStartTrace
    {1, 8, true},   // kStopTrace
    {0, sizeof(Switches)},
}};
static_assert(kCommandShapes.size() == static_cast<size_t>(Command::kSwitches) + 1);
static_assert(kCommandShapes.size() <= kFirstTemplate);

constexpr uint32_t kForgetTemplates = static_cast<uint32_t>(Command::kForgetTemplates);
constexpr uint32_t kNumberEnd = kFirstTemplate + limits::kTemplatesMax;

// `record` counts from 0.
Status column_error(const char* column, uint32_t record, const char* problem) {
  return invalid(std::string("batch, record ") + std::to_string(record) + ": the " + column +
                 " column " + problem);
}

std::span<const std::byte> bytes_of(const flatbuffers::Vector<uint8_t>* column) {
  if (column == nullptr) return {};
  return {reinterpret_cast<const std::byte*>(column->data()), column->size()};
}

Status check_templates(const fb::Batch& batch, size_t body_size_bytes) {
  if (batch.templates() == nullptr) return {};
  if (batch.templates()->size() > limits::kTemplatesMax) {
    return invalid("batch: over " + std::to_string(limits::kTemplatesMax) + " templates");
  }
  size_t total_size_bytes = 0;
  for (const fb::TemplateBlob* blob : *batch.templates()) {
    const size_t size_bytes = blob->bytes() == nullptr ? 0 : blob->bytes()->size();
    if (size_bytes == 0) return invalid("batch: an empty template");
    if (size_bytes > limits::kTemplateSizeBytesMax) {
      return invalid("batch: a template over " + std::to_string(limits::kTemplateSizeBytesMax) +
                     " bytes");
    }
    total_size_bytes += size_bytes;
  }
  // Only blobs that share bytes add up to more than the body.
  if (total_size_bytes > body_size_bytes) return invalid("batch: templates share their bytes");
  return {};
}

Status check_segments(const fb::Batch& batch) {
  if (batch.segments() == nullptr || batch.segments()->size() == 0) return {};
  // The verifier looks at the alignment of a vector's length alone; an empty one needs no other.
  if (reinterpret_cast<uintptr_t>(batch.segments()->Data()) % alignof(uint64_t) != 0) {
    return invalid("batch: the segment sizes are not aligned");
  }
  if (batch.segments()->size() > limits::kSegmentsMax) {
    return invalid("batch: over " + std::to_string(limits::kSegmentsMax) + " payload segments");
  }
  uint64_t left_bytes = limits::kPayloadSizeBytesMax;
  for (const uint64_t size_bytes : *batch.segments()) {
    if (size_bytes > left_bytes) {
      return invalid("batch: over " + std::to_string(limits::kPayloadSizeBytesMax) +
                     " payload bytes");
    }
    left_bytes -= size_bytes;
  }
  return {};
}

Status check_record_count(const fb::Batch& batch) {
  const uint32_t count = batch.record_count();
  if (count > limits::kRecordsMax) {
    return invalid("batch: " + std::to_string(count) + " records are over the limit of " +
                   std::to_string(limits::kRecordsMax));
  }
  // Every number takes 1 to 3 bytes, since kNumberEnd < 2^21.
  static_assert(kNumberEnd < (1u << 21));
  const size_t size_bytes = bytes_of(batch.numbers()).size();
  if (size_bytes < count || size_bytes > size_t{count} * 3) {
    return invalid("batch: " + std::to_string(size_bytes) + " bytes of numbers for " +
                   std::to_string(count) + " records");
  }
  return {};
}

}  // namespace

Result<RecordShape> command_shape(uint32_t number) {
  if (number >= kCommandShapes.size()) {
    return invalid("unknown command " + std::to_string(number));
  }
  return kCommandShapes[number];
}

// ---- BatchEncoder -------------------------------------------------------------------------------

struct BatchEncoder::Columns {
  std::vector<uint8_t> numbers;
  std::vector<uint8_t> locations;
  std::vector<uint8_t> handles;
  std::vector<uint8_t> immediates;
  std::vector<uint8_t> template_bytes;  // One template after the other.
  std::vector<uint32_t> template_sizes_bytes;
  std::vector<uint64_t> segments;
  uint32_t record_count = 0;
  uint32_t location = 0;  // Of the record before that uses a template.
  Handle handle = 0;      // The one before.
  bool complete = false;  // kForgetTemplates was added: no record may follow.
  flatbuffers::FlatBufferBuilder builder{64u << 10};
  std::vector<flatbuffers::Offset<fb::TemplateBlob>> blobs;  // Used by finish() alone.
};

BatchEncoder::BatchEncoder() : columns_(std::make_unique<Columns>()) {}
BatchEncoder::~BatchEncoder() = default;
BatchEncoder::BatchEncoder(BatchEncoder&&) noexcept = default;
BatchEncoder& BatchEncoder::operator=(BatchEncoder&&) noexcept = default;

void BatchEncoder::clear() {
  Columns& c = *columns_;
  c.numbers.clear();
  c.locations.clear();
  c.handles.clear();
  c.immediates.clear();
  c.template_bytes.clear();
  c.template_sizes_bytes.clear();
  c.segments.clear();
  c.record_count = 0;
  c.location = 0;
  c.handle = 0;
  c.complete = false;
}

void BatchEncoder::add_template(std::span<const std::byte> encoded_op_template) {
  Columns& c = *columns_;
  RGPU_CHECK(!encoded_op_template.empty());
  RGPU_CHECK(encoded_op_template.size() <= limits::kTemplateSizeBytesMax);
  RGPU_CHECK(c.template_sizes_bytes.size() < limits::kTemplatesMax);
  const auto* start = reinterpret_cast<const uint8_t*>(encoded_op_template.data());
  c.template_bytes.insert(c.template_bytes.end(), start, start + encoded_op_template.size());
  c.template_sizes_bytes.push_back(static_cast<uint32_t>(encoded_op_template.size()));
}

void BatchEncoder::add_record(uint32_t number, uint32_t location, std::span<const Handle> handles,
                              std::span<const std::byte> immediates) {
  Columns& c = *columns_;
  RGPU_CHECK(!c.complete && c.record_count < limits::kRecordsMax);
  append_varint(c.numbers, number);
  if (number >= kFirstTemplate) {
    RGPU_CHECK(number < kNumberEnd);
    RGPU_CHECK(handles.size() <= limits::kHandlesPerRecordMax);
    RGPU_CHECK(immediates.size() <= limits::kImmediatesSizeBytesMax);
    append_varint(c.locations, zigzag(uint64_t{location} - uint64_t{c.location}));
    c.location = location;
  } else {
    RGPU_CHECK(number < kCommandShapes.size());
    RGPU_CHECK(handles.size() == kCommandShapes[number].handle_count);
    RGPU_CHECK(immediates.size() == kCommandShapes[number].immediates_size_bytes);
    c.complete = number == kForgetTemplates;
  }
  for (const Handle handle : handles) {
    RGPU_CHECK(handle >= 1 && handle <= limits::kHandleMax);
    append_varint(c.handles, zigzag(handle - c.handle));
    c.handle = handle;
  }
  const auto* start = reinterpret_cast<const uint8_t*>(immediates.data());
  c.immediates.insert(c.immediates.end(), start, start + immediates.size());
  ++c.record_count;
}

void BatchEncoder::add_segment(uint64_t size_bytes) {
  RGPU_CHECK(columns_->segments.size() < limits::kSegmentsMax);
  RGPU_CHECK(size_bytes <= limits::kPayloadSizeBytesMax);
  columns_->segments.push_back(size_bytes);
}

uint32_t BatchEncoder::record_count() const noexcept { return columns_->record_count; }

uint32_t BatchEncoder::segment_count() const noexcept {
  return static_cast<uint32_t>(columns_->segments.size());
}

size_t BatchEncoder::size_bytes() const noexcept {
  const Columns& c = *columns_;
  return c.numbers.size() + c.locations.size() + c.handles.size() + c.immediates.size() +
         c.template_bytes.size() + c.segments.size() * sizeof(uint64_t);
}

std::span<const std::byte> BatchEncoder::finish() {
  Columns& c = *columns_;
  c.builder.Clear();
  c.builder.Align(alignof(uint64_t));  // Also without segments, as a reader wants it.
  c.blobs.clear();
  const uint8_t* at = c.template_bytes.data();
  for (const uint32_t size_bytes : c.template_sizes_bytes) {
    c.blobs.push_back(fb::CreateTemplateBlob(c.builder, c.builder.CreateVector(at, size_bytes)));
    at += size_bytes;
  }
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::TemplateBlob>>> templates;
  if (!c.blobs.empty()) templates = c.builder.CreateVector(c.blobs);
  const auto segments = pack(c.builder, c.segments);
  const auto immediates = pack(c.builder, c.immediates);
  const auto handles = pack(c.builder, c.handles);
  const auto locations = pack(c.builder, c.locations);
  const auto numbers = pack(c.builder, c.numbers);
  c.builder.Finish(fb::CreateBatch(c.builder, c.record_count, numbers, locations, handles,
                                   immediates, templates, segments));
  RGPU_CHECK(c.builder.GetSize() <= limits::kBodySizeBytesMax);
  return {reinterpret_cast<const std::byte*>(c.builder.GetBufferPointer()), c.builder.GetSize()};
}

// ---- BatchReader --------------------------------------------------------------------------------

Result<BatchReader> BatchReader::open(std::span<const std::byte> body) {
  RGPU_CHECK(reinterpret_cast<uintptr_t>(body.data()) % alignof(uint64_t) == 0);
  RGPU_RETURN_IF_ERROR(check_size("batch", body.size(), limits::kBodySizeBytesMax));
  auto verifier = make_verifier(body);
  if (body.empty() || !verifier.VerifyBuffer<fb::Batch>(nullptr)) {
    return invalid("batch: the body does not verify");
  }
  const auto* batch = flatbuffers::GetRoot<fb::Batch>(body.data());
  RGPU_RETURN_IF_ERROR(check_record_count(*batch));
  RGPU_RETURN_IF_ERROR(check_templates(*batch, body.size()));
  RGPU_RETURN_IF_ERROR(check_segments(*batch));
  const auto cursor = [](const flatbuffers::Vector<uint8_t>* column) {
    const std::span<const std::byte> bytes = bytes_of(column);
    return Cursor{bytes.data(), bytes.data() + bytes.size()};
  };
  BatchReader reader;
  reader.table_ = batch;
  reader.numbers_ = cursor(batch->numbers());
  reader.locations_ = cursor(batch->locations());
  reader.handles_ = cursor(batch->handles());
  reader.immediates_ = cursor(batch->immediates());
  reader.record_count_ = batch->record_count();
  return reader;
}

uint32_t BatchReader::template_count() const noexcept {
  const auto* templates = static_cast<const fb::Batch*>(table_)->templates();
  return templates == nullptr ? 0 : templates->size();
}

std::span<const std::byte> BatchReader::template_bytes(uint32_t index) const {
  RGPU_CHECK(index < template_count());
  return bytes_of(static_cast<const fb::Batch*>(table_)->templates()->Get(index)->bytes());
}

uint32_t BatchReader::record_count() const noexcept { return record_count_; }

std::span<const uint64_t> BatchReader::segments() const noexcept {
  const auto* segments = static_cast<const fb::Batch*>(table_)->segments();
  if (segments == nullptr || segments->size() == 0) return {};
  return {segments->data(), segments->size()};
}

Result<BatchReader::Record> BatchReader::next() {
  if (records_read_ == record_count_) return invalid("batch: read past its last record");
  const uint32_t index = records_read_;
  uint64_t number = 0;
  if (const char* problem = read_varint(numbers_.at, numbers_.end, number)) {
    return column_error("numbers", index, problem);
  }
  if (number >= kNumberEnd) {
    return column_error("numbers", index, "names a template beyond the limit");
  }
  ++records_read_;
  Record record;
  record.number = static_cast<uint32_t>(number);
  if (number < kFirstTemplate) {
    if (number >= kCommandShapes.size()) {
      return column_error("numbers", index, "holds an unknown command");
    }
    if (number == kForgetTemplates && records_read_ != record_count_) {
      return column_error("numbers", index, "forgets the templates before the last record");
    }
    return record;
  }
  uint64_t difference = 0;
  if (const char* problem = read_varint(locations_.at, locations_.end, difference)) {
    return column_error("locations", index, problem);
  }
  const uint64_t location = uint64_t{location_} + unzigzag(difference);
  if (location > UINT32_MAX) return column_error("locations", index, "leaves 0 … 2^32 - 1");
  location_ = static_cast<uint32_t>(location);
  record.location = location_;
  return record;
}

Status BatchReader::read_handles(std::span<Handle> handles) {
  for (Handle& handle : handles) {
    uint64_t difference = 0;
    if (const char* problem = read_varint(handles_.at, handles_.end, difference)) {
      return column_error("handles", records_read_ - 1, problem);
    }
    // Unsigned on purpose: it wraps for every difference, and what wrapped is out of range.
    handle_ += unzigzag(difference);
    if (handle_ < 1 || handle_ > limits::kHandleMax) {
      return column_error("handles", records_read_ - 1, "leaves 1 … 2^48 - 1");
    }
    handle = handle_;
  }
  return {};
}

Result<std::span<const std::byte>> BatchReader::read_immediates(size_t size_bytes) {
  if (size_bytes > static_cast<size_t>(immediates_.end - immediates_.at)) {
    return column_error("immediates", records_read_ - 1, "ends within the record");
  }
  const std::span<const std::byte> bytes(immediates_.at, size_bytes);
  immediates_.at += size_bytes;
  return bytes;
}

Status BatchReader::finish() const {
  if (records_read_ != record_count_) {
    return invalid("batch: " + std::to_string(record_count_ - records_read_) +
                   " records were not read");
  }
  const auto leftover = [](const char* column) {
    return invalid(std::string("batch: bytes are left over in the ") + column + " column");
  };
  if (numbers_.at != numbers_.end) return leftover("numbers");
  if (locations_.at != locations_.end) return leftover("locations");
  if (handles_.at != handles_.end) return leftover("handles");
  if (immediates_.at != immediates_.end) return leftover("immediates");
  return {};
}

}  // namespace rgpu::wire
