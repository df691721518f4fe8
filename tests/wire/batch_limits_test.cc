// Every limit of a batch from both sides, in bodies that no encoder of ours writes; then what the
// encoder itself refuses.
#include <gtest/gtest.h>

#include <string>

#include "tests/wire/raw_body.h"
#include "wire/batch.h"
#include "wire/limits.h"

namespace rgpu::wire {
namespace {

using Column = std::vector<uint8_t>;

struct RawBatch {
  uint32_t record_count = 0;
  Column numbers;
  Column locations;
  Column handles;
  Column immediates;
  std::vector<Column> templates;
  std::vector<uint64_t> segments;

  [[nodiscard]] std::vector<std::byte> bytes() const {
    Builder builder;
    std::vector<Part> blobs;
    for (const Column& blob : templates) {
      const Part bytes = vector_of(builder, blob);
      blobs.push_back(table(builder, {part(0, bytes)}));
    }
    const Part parts[] = {vector_of(builder, numbers), vector_of(builder, locations),
                          vector_of(builder, handles), vector_of(builder, immediates),
                          vector_of(builder, blobs),   vector_of(builder, segments)};
    std::vector<Field> fields = {scalar(0, record_count)};
    for (unsigned i = 0; i < 6; ++i) fields.push_back(part(i + 1, parts[i]));
    return finish(builder, table(builder, fields));
  }
};

std::string open_error(std::span<const std::byte> bytes) {
  PlacedBody body(bytes);
  const auto reader = BatchReader::open(body.bytes());
  if (reader) return "";
  EXPECT_EQ(reader.error().code(), Code::kInvalidArgument);
  return reader.error().message();
}

std::string open_error(const RawBatch& batch) { return open_error(batch.bytes()); }

// The error of reading every record with as many handles and immediates, and of finish().
std::string read_error(const RawBatch& batch, size_t handle_count = 0,
                       size_t immediates_size_bytes = 0) {
  PlacedBody body(batch.bytes());
  auto reader = BatchReader::open(body.bytes());
  if (!reader) return reader.error().message();
  std::vector<Handle> handles(handle_count);
  for (uint32_t i = 0; i < reader->record_count(); ++i) {
    if (const auto record = reader->next(); !record) return record.error().message();
    if (const Status status = reader->read_handles(handles); !status) return status.message();
    const auto immediates = reader->read_immediates(immediates_size_bytes);
    if (!immediates) return immediates.error().message();
  }
  return reader->finish().message();
}

Column varint(uint64_t value) {
  Column bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<uint8_t>(value | 0x80));
  bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

Column zigzag(int64_t value) {
  return varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}

Column operator+(Column a, const Column& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One record of template 0.
RawBatch one_record() {
  RawBatch batch;
  batch.record_count = 1;
  batch.numbers = {16};
  batch.locations = {0};
  return batch;
}

TEST(BatchLimits, BodySize) {
  std::vector<std::byte> body = RawBatch{}.bytes();
  body.resize(limits::kBodySizeBytesMax);
  EXPECT_EQ(open_error(body), "");
  body.resize(limits::kBodySizeBytesMax + 1);
  EXPECT_EQ(open_error(body), "batch: 16777217 bytes are over the limit of 16777216");
}

TEST(BatchLimits, EmptyAndForeignBodies) {
  EXPECT_EQ(open_error(std::span<const std::byte>{}), "batch: the body does not verify");
  EXPECT_EQ(open_error(std::vector<std::byte>(64, std::byte{0xff})),
            "batch: the body does not verify");
}

TEST(BatchLimits, RecordCount) {
  RawBatch batch;
  batch.record_count = limits::kRecordsMax;
  batch.numbers.resize(limits::kRecordsMax);
  EXPECT_EQ(open_error(batch), "");
  batch.record_count += 1;
  batch.numbers.resize(limits::kRecordsMax + 1);
  EXPECT_EQ(open_error(batch), "batch: 1048577 records are over the limit of 1048576");
}

TEST(BatchLimits, RecordCountMustFitTheNumbersColumn) {
  RawBatch batch = one_record();
  EXPECT_EQ(open_error(batch), "");
  batch.record_count = 2;
  EXPECT_EQ(open_error(batch), "batch: 1 bytes of numbers for 2 records");
  batch.record_count = 0;
  EXPECT_EQ(open_error(batch), "batch: 1 bytes of numbers for 0 records");
  batch.record_count = 1;
  batch.numbers = {0x80, 0x80, 0x80, 1};
  EXPECT_EQ(open_error(batch), "batch: 4 bytes of numbers for 1 records");
}

TEST(BatchLimits, TemplateCount) {
  RawBatch batch;
  batch.templates.assign(limits::kTemplatesMax, Column{1});
  EXPECT_EQ(open_error(batch), "");
  batch.templates.push_back({1});
  EXPECT_EQ(open_error(batch), "batch: over 16384 templates");
}

TEST(BatchLimits, TemplateSize) {
  RawBatch batch;
  batch.templates = {Column(limits::kTemplateSizeBytesMax)};
  EXPECT_EQ(open_error(batch), "");
  batch.templates[0].push_back(0);
  EXPECT_EQ(open_error(batch), "batch: a template over 1048576 bytes");
  batch.templates[0].clear();
  EXPECT_EQ(open_error(batch), "batch: an empty template");
}

TEST(BatchLimits, TemplatesMayNotShareTheirBytes) {
  Builder builder;
  const Part bytes = vector_of(builder, Column(1000));
  const Part blob = table(builder, {part(0, bytes)});
  const Part blobs = vector_of(builder, std::vector<Part>(100, blob));
  EXPECT_EQ(open_error(finish(builder, table(builder, {part(5, blobs)}))),
            "batch: templates share their bytes");
}

TEST(BatchLimits, TemplateWithoutBytes) {
  Builder builder;
  const Part blob = table(builder, {});
  const Part blobs = vector_of(builder, std::vector<Part>{blob});
  EXPECT_EQ(open_error(finish(builder, table(builder, {part(5, blobs)}))),
            "batch: an empty template");
}

TEST(BatchLimits, SegmentCount) {
  RawBatch batch;
  batch.segments.assign(limits::kSegmentsMax, 1);
  EXPECT_EQ(open_error(batch), "");
  batch.segments.push_back(1);
  EXPECT_EQ(open_error(batch), "batch: over 4096 payload segments");
}

TEST(BatchLimits, SegmentSizes) {
  RawBatch batch;
  batch.segments = {limits::kPayloadSizeBytesMax - 1, 1};
  EXPECT_EQ(open_error(batch), "");
  batch.segments = {limits::kPayloadSizeBytesMax, 1};
  EXPECT_EQ(open_error(batch), "batch: over 4294967296 payload bytes");
  batch.segments = {UINT64_MAX, 2};  // Their sum is 1 when it wraps.
  EXPECT_EQ(open_error(batch), "batch: over 4294967296 payload bytes");
}

TEST(BatchLimits, MisalignedSegmentsAreRefused) {
  // Moved by four bytes with its root offset patched, the body still verifies.
  RawBatch batch;
  batch.segments = {1, 2};
  std::vector<std::byte> moved = batch.bytes();
  moved.insert(moved.begin() + 4, 4, std::byte{0});
  moved[0] = static_cast<std::byte>(static_cast<uint8_t>(moved[0]) + 4);
  EXPECT_EQ(open_error(moved), "batch: the segment sizes are not aligned");
}

TEST(BatchLimits, Numbers) {
  RawBatch batch = one_record();
  batch.numbers = varint(kFirstTemplate + limits::kTemplatesMax - 1);
  EXPECT_EQ(read_error(batch), "");
  batch.numbers = varint(kFirstTemplate + limits::kTemplatesMax);
  EXPECT_EQ(read_error(batch),
            "batch, record 0: the numbers column names a template beyond the limit");
  batch.numbers = {0x90, 0x00};
  EXPECT_EQ(read_error(batch),
            "batch, record 0: the numbers column holds a number that is not in its shortest form");
  batch.numbers = {0x90};
  EXPECT_EQ(read_error(batch), "batch, record 0: the numbers column ends within a number");
}

TEST(BatchLimits, EveryNumberBelowTheTemplatesIsACommand) {
  RawBatch batch;
  batch.record_count = 1;
  for (uint8_t number = 0; number < kFirstTemplate; ++number) {
    batch.numbers = {number};
    EXPECT_EQ(read_error(batch), "") << int{number};
  }
}

TEST(BatchLimits, TemplatesAreForgottenByTheLastRecordAlone) {
  RawBatch batch;
  batch.record_count = 2;
  batch.numbers = {0, 6};
  EXPECT_EQ(read_error(batch), "");
  batch.numbers = {6, 0};
  EXPECT_EQ(read_error(batch),
            "batch, record 0: the numbers column forgets the templates before the last record");
}

TEST(BatchLimits, Locations) {
  RawBatch batch = one_record();
  batch.locations = zigzag(UINT32_MAX);
  EXPECT_EQ(read_error(batch), "");
  const std::string leaves = "batch, record 0: the locations column leaves 0 … 2^32 - 1";
  batch.locations = zigzag(int64_t{UINT32_MAX} + 1);
  EXPECT_EQ(read_error(batch), leaves);
  batch.locations = zigzag(-1);
  EXPECT_EQ(read_error(batch), leaves);
  batch.locations = zigzag(INT64_MIN);
  EXPECT_EQ(read_error(batch), leaves);
  batch.locations = {};
  EXPECT_EQ(read_error(batch), "batch, record 0: the locations column ends within a number");
}

TEST(BatchLimits, Handles) {
  RawBatch batch = one_record();
  batch.handles = zigzag(1);
  EXPECT_EQ(read_error(batch, 1), "");
  batch.handles = zigzag(static_cast<int64_t>(limits::kHandleMax));
  EXPECT_EQ(read_error(batch, 1), "");
  const std::string leaves = "batch, record 0: the handles column leaves 1 … 2^48 - 1";
  for (const int64_t difference : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX,
                                   static_cast<int64_t>(limits::kHandleMax) + 1}) {
    batch.handles = zigzag(difference);
    EXPECT_EQ(read_error(batch, 1), leaves) << difference;
  }
  batch.handles = zigzag(1) + zigzag(-1);
  EXPECT_EQ(read_error(batch, 2), leaves);
  EXPECT_EQ(read_error(batch, 3), leaves);
  batch.handles = zigzag(1);
  EXPECT_EQ(read_error(batch, 2), "batch, record 0: the handles column ends within a number");
}

TEST(BatchLimits, VarintsHaveAtMostTenBytesAndSixtyFourBits) {
  RawBatch batch = one_record();
  batch.handles = Column(9, 0xff) + Column{1};  // 2^64 - 1: a legal varint, no legal handle.
  EXPECT_EQ(read_error(batch, 1), "batch, record 0: the handles column leaves 1 … 2^48 - 1");
  const std::string too_long =
      "batch, record 0: the handles column holds a number of more than 64 bits";
  batch.handles = Column(9, 0xff) + Column{2};
  EXPECT_EQ(read_error(batch, 1), too_long);
  batch.handles = Column(10, 0x80) + Column{1};
  EXPECT_EQ(read_error(batch, 1), too_long);
  batch.handles = Column(9, 0x80) + Column{0};
  EXPECT_EQ(read_error(batch, 1),
            "batch, record 0: the handles column holds a number that is not in its shortest form");
}

TEST(BatchLimits, Immediates) {
  RawBatch batch = one_record();
  batch.immediates = Column(8);
  EXPECT_EQ(read_error(batch, 0, 8), "");
  EXPECT_EQ(read_error(batch, 0, 9),
            "batch, record 0: the immediates column ends within the record");
}

TEST(BatchLimits, ErrorsNameTheRecord) {
  RawBatch batch;
  batch.record_count = 3;
  batch.numbers = {16, 16, 16};
  batch.locations = {0, 0, 0};
  batch.immediates = Column(5);
  EXPECT_EQ(read_error(batch, 0, 2),
            "batch, record 2: the immediates column ends within the record");
}

TEST(BatchLimits, LeftOverBytesAreRefused) {
  const auto leftover = [](const std::string& column) {
    return "batch: bytes are left over in the " + column + " column";
  };
  RawBatch batch = one_record();
  batch.numbers.push_back(16);
  EXPECT_EQ(read_error(batch), leftover("numbers"));
  batch = one_record();
  batch.locations.push_back(0);
  EXPECT_EQ(read_error(batch), leftover("locations"));
  batch = one_record();
  batch.handles.push_back(2);
  EXPECT_EQ(read_error(batch), leftover("handles"));
  batch = one_record();
  batch.immediates.push_back(0);
  EXPECT_EQ(read_error(batch), leftover("immediates"));
}

TEST(BatchLimits, FinishWantsEveryRecordRead) {
  PlacedBody body(one_record().bytes());
  auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->finish().message(), "batch: 1 records were not read");
  ASSERT_TRUE(reader->next());
  EXPECT_TRUE(reader->finish());
  EXPECT_EQ(reader->next().error().message(), "batch: read past its last record");
}

TEST(BatchEncoderDeathTest, RefusesWhatAReaderWouldRefuse) {
  BatchEncoder encoder;
  const std::vector<std::byte> none;
  const auto add_op = [&](uint32_t number, const std::vector<Handle>& handles) {
    encoder.add_record(number, 0, handles, none);
  };
  EXPECT_DEATH(add_op(kFirstTemplate, {0}), "handle >= 1");
  EXPECT_DEATH(add_op(kFirstTemplate, {limits::kHandleMax + 1}), "kHandleMax");
  EXPECT_DEATH(add_op(kFirstTemplate + limits::kTemplatesMax, {}), "kNumberEnd");
  EXPECT_DEATH(add_op(kFirstTemplate, std::vector<Handle>(limits::kHandlesPerRecordMax + 1, 1)),
               "kHandlesPerRecordMax");
  EXPECT_DEATH(add_op(0, {}), "handle_count");
  EXPECT_DEATH(add_op(1, {1}), "immediates_size_bytes");
  EXPECT_DEATH(encoder.add_record(kFirstTemplate, 0, {},
                                  std::vector<std::byte>(limits::kImmediatesSizeBytesMax + 1)),
               "kImmediatesSizeBytesMax");
  EXPECT_DEATH(encoder.add_template(none), "empty");
  EXPECT_DEATH(encoder.add_template(std::vector<std::byte>(limits::kTemplateSizeBytesMax + 1)),
               "kTemplateSizeBytesMax");
  EXPECT_DEATH(encoder.add_segment(limits::kPayloadSizeBytesMax + 1), "kPayloadSizeBytesMax");
  for (uint32_t i = 0; i < limits::kSegmentsMax; ++i) encoder.add_segment(1);
  EXPECT_DEATH(encoder.add_segment(1), "kSegmentsMax");
  add_op(6, {});
  EXPECT_DEATH(add_op(0, {1}), "complete");
}

TEST(BatchReaderDeathTest, TemplateIndexIsTheCallersToKeep) {
  PlacedBody body(RawBatch{}.bytes());
  const auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  EXPECT_DEATH((void)reader->template_bytes(0), "template_count");
}

}  // namespace
}  // namespace rgpu::wire
