#include "runtime/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/limits.h"
#include "wire/varint.h"

namespace rgpu {
namespace {

constexpr size_t kBufferSizeBytes = 1 << 20;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

// Where this session is to be recorded; empty: nowhere.
std::string chosen_path(const SessionOptions& options) {
  if (!options.record_path.empty()) return options.record_path;
  std::string path = environment("RGPU_RECORD");
  if (path.empty()) return path;
  if (const size_t at = path.find("%p"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(getpid()));
  }
  static std::mutex mutex;
  static auto* const sessions = new std::map<std::string, uint32_t>;
  const std::lock_guard lock(mutex);
  const uint32_t session = ++(*sessions)[path];
  return session == 1 ? path : path + "." + std::to_string(session);
}

void warn(const std::string& path, const char* problem) {
  std::fprintf(stderr, "rgpu: %s is not recorded: %s\n", path.c_str(), problem);
}

}  // namespace

struct Recorder::Hash {
  Hash() { XXH3_64bits_reset(&state); }
  alignas(64) XXH3_state_t state;
};

std::unique_ptr<Recorder> Recorder::open(const SessionOptions& options) {
  const std::string path = chosen_path(options);
  if (path.empty()) return nullptr;
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    warn(path, std::strerror(errno));
    return nullptr;
  }
  const bool keeps_bytes = options.record_bytes || !environment("RGPU_RECORD_BYTES").empty();
  std::unique_ptr<Recorder> recorder(new Recorder(file, path, keeps_bytes));
  recorder->text(options.client_version);
  recorder->text(options.torch_version);
  recorder->ended_ = Clock::now();
  return recorder;
}

Recorder::Recorder(std::FILE* file, std::string path, bool keeps_bytes)
    : path_(std::move(path)),
      keeps_bytes_(keeps_bytes),
      file_(file),
      hash_(std::make_unique<Hash>()) {
  std::setvbuf(file, nullptr, _IONBF, 0);
  buffer_.reserve(2 * kBufferSizeBytes);
  const auto word = [this](const void* at, size_t size) {
    bytes({static_cast<const std::byte*>(at), size});
  };
  const uint32_t flags = keeps_bytes ? recording::kKeepsBytes : 0;
  word(recording::kMagic, sizeof recording::kMagic);
  word(&recording::kVersion, sizeof recording::kVersion);
  word(&flags, sizeof flags);
}

Recorder::~Recorder() { finish(); }

template <typename Fill>
void Recorder::event(Clock::time_point began, Kind kind, Fill fill) noexcept {
  if (file_ == nullptr) return;
  try {
    const auto gap = std::chrono::duration_cast<std::chrono::nanoseconds>(began - ended_).count();
    buffer_.push_back(static_cast<uint8_t>(kind));
    number(std::min(static_cast<uint64_t>(std::max<int64_t>(gap, 0)), recording::kGapNsMax));
    fill();
    ++events_;
    if (buffer_.size() >= kBufferSizeBytes) write_out();
  } catch (const std::exception& error) {  // No memory.
    give_up(error.what());
  }
  ended_ = Clock::now();
}

void Recorder::record(Clock::time_point began, uint32_t stream, const Record& record) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kRecord, [&] {
    number(stream);
    number(record.number);
    number(record.location);
    number(record.handles.size());
    for (const Handle used : record.handles) handle(used);
    number(record.immediates.size());
    bytes(record.immediates);
  });
}

void Recorder::upload(Clock::time_point began, uint32_t stream, Handle target,
                      uint64_t storage_size_bytes, uint64_t offset_bytes,
                      std::span<const std::byte> payload) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kUpload, [&] {
    number(stream);
    handle(target);
    number(storage_size_bytes);
    number(offset_bytes);
    number(payload.size());
    if (keeps_bytes_) bytes(payload);
  });
}

void Recorder::free(Clock::time_point began, Handle freed) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kFree, [&] { handle(freed); });
}

void Recorder::write_template(Clock::time_point began, uint32_t template_number,
                              std::span<const std::byte> encoded) noexcept {
  event(began, Kind::kTemplate, [&] {
    number(template_number);
    number(encoded.size());
    bytes(encoded);
  });
}

void Recorder::request(Clock::time_point began, uint64_t request, uint64_t size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kRequest, [&] {
    number(request);
    number(size_bytes);
  });
}

void Recorder::abandon(Clock::time_point began, uint64_t request) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kAbandon, [&] { number(request); });
}

void Recorder::wait(Clock::time_point began, uint64_t request,
                    const Result<wire::Reply>& reply) noexcept {
  const std::lock_guard lock(mutex_);
  write_ended(began, Kind::kWait, request, reply);
}

void Recorder::poll(Clock::time_point began, uint64_t request,
                    const std::optional<Result<wire::Reply>>& reply) noexcept {
  const std::lock_guard lock(mutex_);
  if (reply) {
    write_ended(began, Kind::kPoll, request, *reply);
  } else {
    ended_ = Clock::now();
  }
}

void Recorder::write_ended(Clock::time_point began, Kind kind, uint64_t request,
                           const Result<wire::Reply>& reply) noexcept {
  using Outcome = RecordedEvent::Outcome;
  Outcome outcome = Outcome::kGivenUp;
  if (reply) outcome = reply->failed ? Outcome::kFailed : Outcome::kReplied;
  event(began, kind, [&] {
    number(request);
    buffer_.push_back(static_cast<uint8_t>(outcome));
  });
}

void Recorder::flush(Clock::time_point began) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kFlush, [] {});
}

void Recorder::greeting(Clock::time_point began) noexcept {
  const std::lock_guard lock(mutex_);
  event(began, Kind::kGreeting, [] {});
}

void Recorder::finish() noexcept {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  buffer_.push_back(0);
  number(events_);
  write_out();
  if (file_ == nullptr) return;
  const uint64_t hash = XXH3_64bits_digest(&hash_->state);
  const bool written = std::fwrite(&hash, sizeof hash, 1, file_) == 1;
  if (std::fclose(std::exchange(file_, nullptr)) != 0 || !written) {
    warn(path_, std::strerror(errno));
  }
}

void Recorder::number(uint64_t value) { wire::append_varint(buffer_, value); }

void Recorder::handle(Handle handle) {
  number(wire::zigzag(handle - handle_));
  handle_ = handle;
}

void Recorder::text(std::string_view text) {
  text = text.substr(0, limits::kNameSizeBytesMax);
  number(text.size());
  bytes(std::as_bytes(std::span(text)));
}

void Recorder::bytes(std::span<const std::byte> bytes) {
  const auto* const start = reinterpret_cast<const uint8_t*>(bytes.data());
  buffer_.insert(buffer_.end(), start, start + bytes.size());
}

void Recorder::write_out() {
  XXH3_64bits_update(&hash_->state, buffer_.data(), buffer_.size());
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) {
    give_up(std::strerror(errno));
  }
  buffer_.clear();
}

void Recorder::give_up(const char* problem) noexcept {
  warn(path_, problem);
  std::fclose(std::exchange(file_, nullptr));
}

}  // namespace rgpu
