#include "runtime/recording.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/pending_replies.h"
#include "wire/limits.h"
#include "wire/op_template.h"
#include "wire/varint.h"

namespace rgpu {
namespace {

using Kind = RecordedEvent::Kind;
using Outcome = RecordedEvent::Outcome;

constexpr size_t kFixedSizeBytes = sizeof(recording::kMagic) + 2 * sizeof(uint32_t);
constexpr size_t kHashSizeBytes = sizeof(uint64_t);

template <typename Word>
Word word_at(const std::byte* at) {
  Word word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

Status wrong_file(const std::string& name, const std::string& problem) {
  return Status(Code::kInvalidArgument, "the recording " + name + " " + problem);
}

}  // namespace

Result<Recording> Recording::open(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr)
    return wrong_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  std::vector<std::byte> bytes;
  size_t size = 0;
  // One byte more than allowed is enough to know.
  while (std::feof(file.get()) == 0 && std::ferror(file.get()) == 0 &&
         size <= recording::kFileSizeBytesMax) {
    bytes.resize(size + (1 << 20));
    size += std::fread(bytes.data() + size, 1, bytes.size() - size, file.get());
  }
  bytes.resize(size);
  if (std::ferror(file.get()) != 0) return wrong_file(path, "cannot be read");
  return parse(std::move(bytes), path);
}

Result<Recording> Recording::parse(std::vector<std::byte> bytes, std::string name) {
  if (bytes.size() > recording::kFileSizeBytesMax) {
    return wrong_file(name, "is over " + std::to_string(recording::kFileSizeBytesMax >> 20) +
                                " MiB: record less");
  }
  if (bytes.size() < kFixedSizeBytes + kHashSizeBytes ||
      std::memcmp(bytes.data(), recording::kMagic, sizeof recording::kMagic) != 0) {
    return wrong_file(name, "is none: RGPU_RECORD=FILE makes one");
  }
  const auto version = word_at<uint32_t>(bytes.data() + sizeof recording::kMagic);
  if (version != recording::kVersion) {
    return wrong_file(name, "has format version " + std::to_string(version) + ", and this build " +
                                "reads " + std::to_string(recording::kVersion) +
                                ": record the program again");
  }
  const size_t hashed = bytes.size() - kHashSizeBytes;
  if (word_at<uint64_t>(bytes.data() + hashed) != XXH3_64bits(bytes.data(), hashed)) {
    return wrong_file(name, "is damaged, or its program did not end its session: record it again");
  }
  Recording result;
  result.bytes_ = std::move(bytes);
  result.name_ = std::move(name);
  RGPU_RETURN_IF_ERROR(result.verify());
  return result;
}

Status Recording::verify() {
  const auto flags = word_at<uint32_t>(bytes_.data() + sizeof recording::kMagic + sizeof(uint32_t));
  if ((flags & ~recording::kKeepsBytes) != 0) return wrong_file(name_, "has unknown flags");
  facts_.keeps_bytes = (flags & recording::kKeepsBytes) != 0;
  const std::byte* at = bytes_.data() + kFixedSizeBytes;
  const std::byte* const end = bytes_.data() + bytes_.size() - kHashSizeBytes;
  for (std::string* text : {&facts_.client_version, &facts_.torch_version}) {
    uint64_t size = 0;
    if (const char* problem = wire::read_varint(at, end, size)) return wrong_file(name_, problem);
    if (size > limits::kNameSizeBytesMax || size > static_cast<uint64_t>(end - at)) {
      return wrong_file(name_, "has a version of " + std::to_string(size) + " bytes");
    }
    text->assign(reinterpret_cast<const char*>(at), size);
    at += size;
  }
  events_at_ = static_cast<size_t>(at - bytes_.data());

  RecordingReader reader(*this);
  RecordedEvent event;
  std::unordered_map<uint64_t, bool> syncs;  // The requests of kSyncs.
  bool synchronized = false;
  while (true) {
    RGPU_RETURN_IF_ERROR(reader.next(event));
    if (event.kind == Kind::kEnd) return {};
    ++facts_.events;
    facts_.main_gap_ns += event.gap_ns;
    const bool waits = event.kind == Kind::kWait;
    if (event.kind == Kind::kRecord || event.kind == Kind::kUpload) {
      ++facts_.records;
      facts_.ends_waiting = false;
      for (const Handle handle : event.record.handles) {
        facts_.handle_max = std::max(facts_.handle_max, handle);
      }
    }
    if (waits) facts_.ends_waiting = true;
    if (waits) ++facts_.waits;
    if (event.kind == Kind::kUpload) {
      facts_.upload_size_bytes_max = std::max(facts_.upload_size_bytes_max, event.size_bytes);
    }
    facts_.handle_max = std::max(facts_.handle_max, event.handle);
    if (synchronized) continue;
    if (event.kind == Kind::kRecord &&
        event.record.number == static_cast<uint32_t>(wire::Command::kSync)) {
      syncs[event.request] = true;
    } else if (waits && syncs.contains(event.request)) {
      synchronized = true;
      facts_.main_part = facts_.events;
      facts_.main_gap_ns = 0;
    }
  }
}

RecordingReader::RecordingReader(const Recording& recording)
    : recording_(recording),
      at_(recording.bytes_.data() + recording.events_at_),
      end_(recording.bytes_.data() + recording.bytes_.size() - kHashSizeBytes) {}

Status RecordingReader::wrong(const std::string& problem) const {
  return wrong_file(recording_.name_,
                    "is wrong in event " + std::to_string(events_) + ", which " + problem);
}

Status RecordingReader::read_number(uint64_t& value, const char* what, uint64_t maximum) {
  if (const char* problem = wire::read_varint(at_, end_, value)) return wrong(problem);
  if (value > maximum) {
    return wrong(std::string("has a ") + what + " of " + std::to_string(value) + ", over " +
                 std::to_string(maximum));
  }
  return {};
}

Status RecordingReader::read_handle(Handle& handle) {
  uint64_t difference = 0;
  if (const char* problem = wire::read_varint(at_, end_, difference)) return wrong(problem);
  handle_ += wire::unzigzag(difference);  // Wraps; what wrapped is out of range.
  if (handle_ < 1 || handle_ > recording::kHandleMax) {
    return wrong("has a handle beyond 1 … " + std::to_string(recording::kHandleMax));
  }
  handle = handle_;
  return {};
}

Status RecordingReader::read_bytes(std::span<const std::byte>& bytes, uint64_t size_bytes) {
  if (size_bytes > static_cast<uint64_t>(end_ - at_)) return wrong("ends within its bytes");
  bytes = {at_, static_cast<size_t>(size_bytes)};
  at_ += size_bytes;
  return {};
}

Status RecordingReader::next(RecordedEvent& event) {
  event = {};
  if (at_ == end_) return wrong("is missing");
  const auto kind = static_cast<uint8_t>(*at_);
  if (kind > static_cast<uint8_t>(Kind::kFlush)) {
    return wrong("is of the unknown kind " + std::to_string(kind));
  }
  if (kind == 0) return read_end();
  ++at_;
  event.kind = static_cast<Kind>(kind);
  if (++events_ > recording::kEventsMax) return wrong("is one too many");
  RGPU_RETURN_IF_ERROR(read_number(event.gap_ns, "gap", recording::kGapNsMax));
  switch (event.kind) {
    case Kind::kRecord:
      return read_record(event);
    case Kind::kUpload:
      return read_upload(event);
    case Kind::kFree:
      return read_handle(event.handle);
    case Kind::kTemplate:
      return read_template(event);
    case Kind::kRequest:
    case Kind::kAbandon:
    case Kind::kWait:
    case Kind::kPoll:
      return read_request(event);
    case Kind::kGreeting:
    case Kind::kFlush:
    case Kind::kEnd:
      break;
  }
  return {};
}

Status RecordingReader::read_end() {
  const std::byte* at = at_ + 1;  // at_ stays, so that the end is met again.
  uint64_t count = 0;
  if (const char* problem = wire::read_varint(at, end_, count)) return wrong(problem);
  if (at != end_) return wrong("is followed by something else");
  if (count != events_) return wrong("should be number " + std::to_string(count));
  return {};
}

Status RecordingReader::read_record(RecordedEvent& event) {
  uint64_t stream = 0, number = 0, location = 0, count = 0, size = 0;
  RGPU_RETURN_IF_ERROR(read_number(stream, "stream", limits::kStreamsMax - 1));
  RGPU_RETURN_IF_ERROR(
      read_number(number, "number", wire::kFirstTemplate + limits::kTemplatesMax - 1));
  RGPU_RETURN_IF_ERROR(read_number(location, "location", UINT32_MAX));
  RGPU_RETURN_IF_ERROR(read_number(count, "handle count", limits::kHandlesPerRecordMax));
  if (count > static_cast<uint64_t>(end_ - at_)) return wrong("ends within its handles");
  handles_.resize(count);
  for (Handle& handle : handles_) RGPU_RETURN_IF_ERROR(read_handle(handle));
  RGPU_RETURN_IF_ERROR(read_number(size, "size", limits::kImmediatesSizeBytesMax));
  RGPU_RETURN_IF_ERROR(read_bytes(event.record.immediates, size));
  event.stream = static_cast<uint32_t>(stream);
  event.record.number = static_cast<uint32_t>(number);
  event.record.location = static_cast<uint32_t>(location);
  event.record.handles = handles_;
  RGPU_RETURN_IF_ERROR(check_shape(event));
  if (event.record.number == static_cast<uint32_t>(wire::Command::kForgetTemplates)) {
    templates_.clear();
  }
  if (event.request_at == RecordedEvent::kAsksNothing) return {};
  event.request = word_at<uint64_t>(event.record.immediates.data() + event.request_at);
  const auto request = requests_.find(event.request);
  if (request == requests_.end() || request->second) {
    return wrong("carries request " + std::to_string(event.request) +
                 ", which was not made for it");
  }
  request->second = true;
  return {};
}

// The record has what its number says, and where it asks is known.
Status RecordingReader::check_shape(RecordedEvent& event) const {
  const uint32_t number = event.record.number;
  TemplateShape shape;
  if (number < wire::kFirstTemplate) {
    const Result<wire::RecordShape> command = wire::command_shape(number);
    // Uploads are events of their own; frees and streams are the session's.
    constexpr wire::Command kNotRecords[] = {wire::Command::kFree, wire::Command::kUpload,
                                             wire::Command::kStream};
    for (const wire::Command other : kNotRecords) {
      if (number == static_cast<uint32_t>(other)) return wrong("is no record");
    }
    if (!command) return wrong("is an " + command.error().message());
    shape = {command->handle_count, command->immediates_size_bytes, false};
    if (command->asks) event.request_at = 0;
  } else {
    const uint32_t index = number - wire::kFirstTemplate;
    if (index >= templates_.size()) return wrong("uses a template that is not defined");
    shape = templates_[index];
    constexpr uint32_t kRequestSizeBytes = 8;  // The last ones.
    if (shape.replies) event.request_at = shape.immediates_size_bytes - kRequestSizeBytes;
  }
  if (event.record.handles.size() != shape.handle_count ||
      event.record.immediates.size() != shape.immediates_size_bytes) {
    return wrong("does not have the handles and immediates of its number");
  }
  return {};
}

Status RecordingReader::read_upload(RecordedEvent& event) {
  uint64_t stream = 0;
  RGPU_RETURN_IF_ERROR(read_number(stream, "stream", limits::kStreamsMax - 1));
  RGPU_RETURN_IF_ERROR(read_handle(event.handle));
  RGPU_RETURN_IF_ERROR(
      read_number(event.storage_size_bytes, "storage size", limits::kStorageSizeBytesMax));
  RGPU_RETURN_IF_ERROR(read_number(event.offset_bytes, "offset", event.storage_size_bytes));
  RGPU_RETURN_IF_ERROR(read_number(event.size_bytes, "size", limits::kPayloadSizeBytesMax));
  if (event.size_bytes > event.storage_size_bytes - event.offset_bytes) {
    return wrong("leaves its storage");
  }
  event.stream = static_cast<uint32_t>(stream);
  return recording_.facts_.keeps_bytes ? read_bytes(event.bytes, event.size_bytes) : Status();
}

Status RecordingReader::read_template(RecordedEvent& event) {
  uint64_t number = 0, size = 0;
  RGPU_RETURN_IF_ERROR(read_number(number, "number", UINT32_MAX));
  if (number != wire::kFirstTemplate + templates_.size() ||
      templates_.size() == limits::kTemplatesMax) {
    return wrong("defines template " + std::to_string(number) + " out of turn");
  }
  RGPU_RETURN_IF_ERROR(read_number(size, "size", limits::kTemplateSizeBytesMax));
  RGPU_RETURN_IF_ERROR(read_bytes(event.bytes, size));
  const Result<wire::OpTemplate> op = wire::decode_op_template(event.bytes);
  if (!op) return wrong("has a wrong template: " + op.error().message());
  event.record.number = static_cast<uint32_t>(number);
  templates_.push_back({op->handle_count(), op->immediates_size_bytes(), op->replies});
  return {};
}

Status RecordingReader::read_request(RecordedEvent& event) {
  RGPU_RETURN_IF_ERROR(read_number(event.request, "request", UINT64_MAX));
  const auto named = [&] { return "request " + std::to_string(event.request); };
  if (event.kind == Kind::kRequest) {
    RGPU_RETURN_IF_ERROR(read_number(event.size_bytes, "size", limits::kPayloadSizeBytesMax));
    if (requests_.size() == PendingReplies::kRequestsMax)
      return wrong("makes one request too many");
    return requests_.emplace(event.request, false).second ? Status()
                                                          : wrong("makes " + named() + " again");
  }
  const auto request = requests_.find(event.request);
  const bool replied = event.kind != Kind::kAbandon;
  if (request == requests_.end() || request->second != replied) {
    return wrong("ends " + named() +
                 (replied ? ", which no record carries" : ", which is carried"));
  }
  requests_.erase(request);
  if (!replied) return {};
  std::span<const std::byte> outcome;
  RGPU_RETURN_IF_ERROR(read_bytes(outcome, 1));
  event.outcome = static_cast<Outcome>(outcome[0]);
  return event.outcome <= Outcome::kGivenUp ? Status() : wrong("has an unknown outcome");
}

}  // namespace rgpu
