// A batch is read as a server would. When all of it reads well, an encoder that is given the same
// records gives a batch that reads the same.
#include <algorithm>
#include <cstring>
#include <vector>

#include "wire/batch.h"
#include "wire/limits.h"
#include "wire/switches.h"

namespace rgpu::wire {
namespace {

struct Read {
  BatchReader::Record record;
  std::vector<Handle> handles;
  std::vector<std::byte> immediates;
};

// Stands for a template of this number, so that records of many shapes are met.
RecordShape shape_of(uint32_t number) {
  if (number < kFirstTemplate) return *command_shape(number);
  return {number % 5, number % 7 * 4};
}

void check_switches(std::span<const std::byte, sizeof(Switches)> bytes) {
  const Result<Switches> switches = decode_switches(bytes);
  if (!switches) return;
  RGPU_CHECK(std::memcmp(&*switches, bytes.data(), bytes.size()) == 0);
  RGPU_CHECK(switches->sdp_priority[0] < Switches::kSdpBackends);
}

Result<std::vector<Read>> read_records(BatchReader& reader) {
  std::vector<Read> reads;
  for (uint32_t i = 0; i < reader.record_count(); ++i) {
    const auto record = reader.next();
    if (!record) return record.error();
    const RecordShape shape = shape_of(record->number);
    Read read{*record, std::vector<Handle>(shape.handle_count), {}};
    RGPU_RETURN_IF_ERROR(reader.read_handles(read.handles));
    for (const Handle handle : read.handles) {
      RGPU_CHECK(handle >= 1 && handle <= limits::kHandleMax);
    }
    const auto immediates = reader.read_immediates(shape.immediates_size_bytes);
    if (!immediates) return immediates.error();
    if (record->number == static_cast<uint32_t>(Command::kSwitches)) {
      check_switches(immediates->first<sizeof(Switches)>());
    }
    read.immediates.assign(immediates->begin(), immediates->end());
    reads.push_back(std::move(read));
  }
  RGPU_RETURN_IF_ERROR(reader.finish());
  return reads;
}

void check_same_when_encoded(const BatchReader& source, const std::vector<Read>& reads) {
  BatchEncoder encoder;
  for (uint32_t i = 0; i < source.template_count(); ++i) {
    encoder.add_template(source.template_bytes(i));
  }
  for (const Read& read : reads) {
    encoder.add_record(read.record.number, read.record.location, read.handles, read.immediates);
  }
  for (const uint64_t size_bytes : source.segments()) encoder.add_segment(size_bytes);
  auto reader = BatchReader::open(encoder.finish());
  RGPU_CHECK(reader.has_value());
  RGPU_CHECK(reader->template_count() == source.template_count());
  RGPU_CHECK(std::ranges::equal(reader->segments(), source.segments()));
  const auto again = read_records(*reader);
  RGPU_CHECK(again.has_value());
  RGPU_CHECK(std::ranges::equal(*again, reads, [](const Read& a, const Read& b) {
    return a.record.number == b.record.number && a.record.location == b.record.location &&
           a.handles == b.handles && a.immediates == b.immediates;
  }));
}

}  // namespace
}  // namespace rgpu::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  std::vector<uint64_t> aligned(size_bytes / 8 + 1);
  if (size_bytes != 0) std::memcpy(aligned.data(), data, size_bytes);
  auto reader = BatchReader::open(std::as_bytes(std::span(aligned)).first(size_bytes));
  if (!reader) return 0;
  const auto reads = read_records(*reader);
  if (reads) check_same_when_encoded(*reader, *reads);
  return 0;
}
