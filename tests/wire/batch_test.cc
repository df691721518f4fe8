// What an encoder writes, a reader reads; where the bytes lie; and that neither allocates.
#include "wire/batch.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <random>
#include <string>

#include "tests/wire/allocations.h"
#include "tests/wire/raw_body.h"
#include "wire/limits.h"

namespace rgpu::wire {
namespace {

struct TestRecord {
  uint32_t number = 0;
  uint32_t location = 0;
  std::vector<Handle> handles;
  std::vector<std::byte> immediates;
};

std::vector<std::byte> some_bytes(size_t size_bytes, unsigned first = 0) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

void add(BatchEncoder& encoder, const TestRecord& record) {
  encoder.add_record(record.number, record.location, record.handles, record.immediates);
}

// Templates and commands in any order, with values at both ends of their ranges.
std::vector<TestRecord> random_records(unsigned seed, size_t count) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t end) { return random() % end; };
  std::vector<TestRecord> records(count);
  for (TestRecord& record : records) {
    size_t handle_count = below(9);
    size_t immediates_size_bytes = below(40);
    if (below(3) == 0) {
      const uint32_t commands[] = {0, 1, 2, 3, 4, 5, 7, 8};
      record.number = commands[below(std::size(commands))];
      const RecordShape shape = *command_shape(record.number);
      handle_count = shape.handle_count;
      immediates_size_bytes = shape.immediates_size_bytes;
    } else {
      record.number = kFirstTemplate + static_cast<uint32_t>(below(limits::kTemplatesMax));
      record.location = static_cast<uint32_t>(random() >> below(64));
    }
    for (size_t i = 0; i < handle_count; ++i) {
      record.handles.push_back(1 + (random() >> (16 + below(48))) % limits::kHandleMax);
    }
    record.immediates = some_bytes(immediates_size_bytes, static_cast<unsigned>(below(256)));
  }
  return records;
}

void expect_reads(BatchReader& reader, const std::vector<TestRecord>& records) {
  ASSERT_EQ(reader.record_count(), records.size());
  for (const TestRecord& expected : records) {
    const auto record = reader.next();
    ASSERT_TRUE(record) << record.error().message();
    EXPECT_EQ(record->number, expected.number);
    EXPECT_EQ(record->location, expected.number < kFirstTemplate ? 0 : expected.location);
    std::vector<Handle> handles(expected.handles.size());
    ASSERT_TRUE(reader.read_handles(handles));
    EXPECT_EQ(handles, expected.handles);
    const auto immediates = reader.read_immediates(expected.immediates.size());
    ASSERT_TRUE(immediates);
    EXPECT_TRUE(std::equal(immediates->begin(), immediates->end(), expected.immediates.begin(),
                           expected.immediates.end()));
  }
  EXPECT_TRUE(reader.finish());
}

TEST(Batch, EmptyRoundTrips) {
  BatchEncoder encoder;
  PlacedBody body(encoder.finish());
  auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->record_count(), 0u);
  EXPECT_EQ(reader->template_count(), 0u);
  EXPECT_TRUE(reader->segments().empty());
  EXPECT_TRUE(reader->finish());
  EXPECT_FALSE(reader->next());
}

TEST(Batch, RecordsRoundTrip) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto records = random_records(seed, 200);
    BatchEncoder encoder;
    for (const TestRecord& record : records) add(encoder, record);
    EXPECT_EQ(encoder.record_count(), records.size());
    PlacedBody body(encoder.finish());
    auto reader = BatchReader::open(body.bytes());
    ASSERT_TRUE(reader) << reader.error().message();
    expect_reads(*reader, records);
  }
}

TEST(Batch, TemplatesAndSegmentsRoundTrip) {
  BatchEncoder encoder;
  encoder.add_template(some_bytes(3));
  encoder.add_template(some_bytes(1000));
  encoder.add_segment(0);
  encoder.add_segment(uint64_t{3} << 30);
  EXPECT_EQ(encoder.segment_count(), 2u);
  PlacedBody body(encoder.finish());
  auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  ASSERT_EQ(reader->template_count(), 2u);
  EXPECT_EQ(reader->template_bytes(0).size(), 3u);
  EXPECT_EQ(reader->template_bytes(1).size(), 1000u);
  EXPECT_EQ(reader->template_bytes(1)[999], static_cast<std::byte>(999 & 0xff));
  ASSERT_EQ(reader->segments().size(), 2u);
  EXPECT_EQ(reader->segments()[0], 0u);
  EXPECT_EQ(reader->segments()[1], uint64_t{3} << 30);
}

TEST(Batch, TheBodyOfFinishIsAlignedForTheReader) {
  BatchEncoder encoder;
  for (unsigned i = 1; i < 40; ++i) {
    encoder.add_record(kFirstTemplate, 0, std::vector<Handle>{i}, some_bytes(i));
    auto reader = BatchReader::open(encoder.finish());  // Checks its argument's alignment.
    ASSERT_TRUE(reader) << i;
  }
}

TEST(Batch, ClearStartsAnew) {
  BatchEncoder encoder;
  encoder.add_template(some_bytes(10));
  encoder.add_segment(10);
  for (const TestRecord& record : random_records(1, 10)) add(encoder, record);
  encoder.add_record(static_cast<uint32_t>(Command::kForgetTemplates), 0, {}, {});
  (void)encoder.finish();
  encoder.clear();
  EXPECT_EQ(encoder.record_count(), 0u);
  EXPECT_EQ(encoder.segment_count(), 0u);
  EXPECT_EQ(encoder.size_bytes(), 0u);
  const auto records = random_records(2, 10);
  for (const TestRecord& record : records) add(encoder, record);
  PlacedBody body(encoder.finish());
  auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->template_count(), 0u);
  EXPECT_TRUE(reader->segments().empty());
  expect_reads(*reader, records);
}

TEST(Batch, FinishMayBeCalledAgainAndAfterMoreRecords) {
  const auto records = random_records(3, 20);
  BatchEncoder encoder;
  for (size_t i = 0; i < 10; ++i) add(encoder, records[i]);
  (void)encoder.finish();
  for (size_t i = 10; i < 20; ++i) add(encoder, records[i]);
  BatchEncoder moved = std::move(encoder);
  PlacedBody body(moved.finish());
  auto reader = BatchReader::open(body.bytes());
  ASSERT_TRUE(reader);
  expect_reads(*reader, records);
}

std::vector<uint8_t> column_of(std::span<const std::byte> body, unsigned position) {
  const auto* root = flatbuffers::GetRoot<flatbuffers::Table>(body.data());
  const auto* column = root->GetPointer<const flatbuffers::Vector<uint8_t>*>(slot(position));
  return column == nullptr ? std::vector<uint8_t>{}
                           : std::vector<uint8_t>(column->begin(), column->end());
}

// The example of docs/protocol.md, byte by byte.
TEST(Batch, ColumnsHaveTheseBytes) {
  BatchEncoder encoder;
  const auto allocate_size = std::bit_cast<std::array<std::byte, 8>>(uint64_t{4096});
  encoder.add_record(static_cast<uint32_t>(Command::kAllocate), 99, std::vector<Handle>{300},
                     allocate_size);
  encoder.add_record(kFirstTemplate, 10, std::vector<Handle>{300, 300, 301}, {});
  encoder.add_record(kFirstTemplate + 200, 7, std::vector<Handle>{301, 5}, some_bytes(2, 0xa0));
  encoder.add_record(static_cast<uint32_t>(Command::kFree), 0, std::vector<Handle>{300}, {});
  const auto body = encoder.finish();
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(column_of(body, 1), (Bytes{1, 16, 0xd8, 1, 0}));
  EXPECT_EQ(column_of(body, 2), (Bytes{20, 5}));
  EXPECT_EQ(column_of(body, 3), (Bytes{0xd8, 4, 0, 0, 2, 0, 0xcf, 4, 0xce, 4}));
  EXPECT_EQ(column_of(body, 4), (Bytes{0, 0x10, 0, 0, 0, 0, 0, 0, 0xa0, 0xa1}));
  EXPECT_EQ(encoder.size_bytes(), 5u + 2u + 10u + 10u);
}

TEST(Batch, CommandShapesAreAsTheirCommentsSay) {
  const auto expect_shape = [](Command command, uint32_t handles, uint32_t size_bytes) {
    const auto shape = command_shape(static_cast<uint32_t>(command));
    ASSERT_TRUE(shape);
    EXPECT_EQ(shape->handle_count, handles) << static_cast<uint32_t>(command);
    EXPECT_EQ(shape->immediates_size_bytes, size_bytes) << static_cast<uint32_t>(command);
  };
  expect_shape(Command::kFree, 1, 0);
  expect_shape(Command::kAllocate, 1, 8);
  expect_shape(Command::kUpload, 1, 24);
  expect_shape(Command::kFetch, 1, 24);
  expect_shape(Command::kSync, 0, 8);
  expect_shape(Command::kStream, 0, 4);
  expect_shape(Command::kForgetTemplates, 0, 0);
  expect_shape(Command::kResize, 1, 8);
  expect_shape(Command::kMemory, 0, 12);
  expect_shape(Command::kRecordEvent, 1, 0);
  expect_shape(Command::kWaitEvent, 1, 0);
  expect_shape(Command::kQueryEvent, 1, 8);
  expect_shape(Command::kSyncStream, 0, 8);
  expect_shape(Command::kStartTrace, 0, 8);
  expect_shape(Command::kStopTrace, 1, 8);
  expect_shape(Command::kSwitches, 0, 32);
  EXPECT_EQ(command_shape(kFirstTemplate).error().message(), "unknown command 16");
}

TEST(Batch, CommandsThatAskAreKnown) {
  std::vector<Command> asking;
  for (uint32_t number = 0; command_shape(number); ++number) {
    if (command_shape(number)->asks) asking.push_back(static_cast<Command>(number));
  }
  EXPECT_EQ(asking,
            (std::vector{Command::kFetch, Command::kSync, Command::kMemory, Command::kQueryEvent,
                         Command::kSyncStream, Command::kStartTrace, Command::kStopTrace}));
}

TEST(Batch, SteadyStateAllocatesNothing) {
  const auto records = random_records(4, 1000);
  const auto op = some_bytes(300);
  BatchEncoder encoder;
  const auto encode_all = [&] {
    encoder.clear();
    for (int i = 0; i < 20; ++i) encoder.add_template(op);
    for (const TestRecord& record : records) add(encoder, record);
    for (int i = 0; i < 10; ++i) encoder.add_segment(1 << 20);
    return encoder.finish();
  };
  (void)encode_all();
  const uint64_t before = allocation_count();
  for (int i = 0; i < 3; ++i) (void)encode_all();
  EXPECT_EQ(allocation_count() - before, 0u);
}

TEST(Batch, ReadingAllocatesNothing) {
  const auto records = random_records(5, 1000);
  BatchEncoder encoder;
  for (const TestRecord& record : records) add(encoder, record);
  const auto body = encoder.finish();
  std::vector<Handle> handles(16);
  const uint64_t before = allocation_count();
  auto reader = BatchReader::open(body);
  for (const TestRecord& expected : records) {
    const bool read = reader->next().has_value() &&
                      reader->read_handles(std::span(handles).first(expected.handles.size())) &&
                      reader->read_immediates(expected.immediates.size()).has_value();
    if (!read) break;
  }
  const bool complete = reader->finish().ok();
  EXPECT_EQ(allocation_count() - before, 0u);
  EXPECT_TRUE(complete);
}

// Reads what it can, as the server would for a template of two handles and three bytes.
void read_all(std::span<const std::byte> bytes) {
  auto reader = BatchReader::open(bytes);
  if (!reader) return;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < reader->template_count(); ++i) {
    for (const std::byte byte : reader->template_bytes(i)) sum += static_cast<uint64_t>(byte);
  }
  for (const uint64_t size_bytes : reader->segments()) sum += size_bytes;
  for (uint32_t i = 0; i < reader->record_count(); ++i) {
    const auto record = reader->next();
    if (!record) return;
    RecordShape shape{2, 3};
    if (record->number < kFirstTemplate) shape = *command_shape(record->number);
    std::array<Handle, 2> handles{};
    if (!reader->read_handles(std::span(handles).first(shape.handle_count))) return;
    for (uint32_t j = 0; j < shape.handle_count; ++j) {
      ASSERT_GE(handles[j], 1u);
      ASSERT_LE(handles[j], limits::kHandleMax);
    }
    const auto immediates = reader->read_immediates(shape.immediates_size_bytes);
    if (!immediates) return;
    for (const std::byte byte : *immediates) sum += static_cast<uint64_t>(byte);
  }
  volatile uint64_t keep = sum + (reader->finish().ok() ? 1 : 0);
  (void)keep;
}

TEST(Batch, DamagedBodiesNeverCrash) {
  BatchEncoder encoder;
  encoder.add_template(some_bytes(30));
  encoder.add_template(some_bytes(40));
  encoder.add_segment(100);
  encoder.add_segment(200);
  for (uint32_t i = 0; i < 10; ++i) {
    encoder.add_record(kFirstTemplate + i % 2, i * 1000, std::vector<Handle>{i + 1, i + 2},
                       some_bytes(3));
    encoder.add_record(static_cast<uint32_t>(Command::kFree), 0, std::vector<Handle>{i + 1}, {});
  }
  const auto body = encoder.finish();
  read_all(body);
  for_every_damage(body, read_all);
}

}  // namespace
}  // namespace rgpu::wire
