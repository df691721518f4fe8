#include "runtime/replay.h"

#include <time.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace rgpu {
namespace {

using Kind = RecordedEvent::Kind;
using Outcome = RecordedEvent::Outcome;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

// Longer gaps are slept away but for their end: a program that does nothing for so long waits for
// its input, as likely as not.
constexpr nanoseconds kSleptGap = std::chrono::milliseconds(1);
constexpr nanoseconds kSpunEnd = microseconds(100);
// Reading a thread's CPU clock is a system call, so shorter gaps are taken by the wall clock.
constexpr nanoseconds kMeasuredGap = microseconds(20);

constexpr char kZerosHint[] =
    " (uploads are zeros here; a program whose shapes depend on data needs RGPU_RECORD_BYTES=1)";

nanoseconds thread_cpu() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Of as many zeros as the largest upload; pages that are only read cost no memory.
std::shared_ptr<const std::byte[]> make_zeros(const RecordingFacts& facts) {
  const uint64_t size_bytes = facts.keeps_bytes ? 0 : facts.upload_size_bytes_max;
  return {static_cast<const std::byte*>(std::calloc(size_bytes + 1, 1)),
          [](const std::byte* zeros) { std::free(const_cast<std::byte*>(zeros)); }};
}

bool waits(Kind kind) {
  return kind == Kind::kWait || kind == Kind::kPoll || kind == Kind::kGreeting;
}

}  // namespace

Replay::Replay(Session& session, const Recording& recording)
    : session_(session),
      recording_(recording),
      reader_(recording),
      // Recorded handles begin at 1.
      handles_base_(session.new_handles(static_cast<uint32_t>(recording.facts().handle_max)) - 1),
      zeros_(make_zeros(recording.facts())) {}

Status Replay::play(uint64_t events_end, Pace pace, WaitObserver& observer) {
  if (zeros_ == nullptr) return Status(Code::kExhausted, "no memory for a replay's uploads");
  RecordedEvent event;
  Clock::time_point ended = Clock::now();
  while (figures_.events < events_end) {
    RGPU_RETURN_IF_ERROR(reader_.next(event));
    if (event.kind == Kind::kEnd) break;
    if (pace == Pace::kRecorded) pass_gap(ended, nanoseconds(event.gap_ns));
    const Clock::time_point began = Clock::now();
    if (Status issued = issue(event, observer); !issued) {
      const bool zeros = !recording_.facts().keeps_bytes;
      return Status(issued.code(), "event " + std::to_string(figures_.events + 1) + " of " +
                                       recording_.name() + ": " + issued.message() +
                                       (zeros ? kZerosHint : ""));
    }
    ended = Clock::now();
    if (!waits(event.kind)) figures_.calls += ended - began;
    ++figures_.events;
  }
  return {};
}

void Replay::pass_gap(Clock::time_point since, nanoseconds gap) {
  const Clock::time_point due = since + gap;
  const Clock::time_point began = Clock::now();
  if (began >= due) return;
  const bool measured = due - began >= kMeasuredGap;
  const nanoseconds cpu_began = measured ? thread_cpu() : nanoseconds(0);
  if (due - began >= kSleptGap) std::this_thread::sleep_until(due - kSpunEnd);
  while (Clock::now() < due) {
  }
  // The short one's length, also when the thread lost its processor meanwhile.
  figures_.gap_cpu += measured ? thread_cpu() - cpu_began : due - began;
}

Status Replay::issue(const RecordedEvent& event, WaitObserver& observer) {
  switch (event.kind) {
    case Kind::kRecord:
      return issue_record(event, observer);
    case Kind::kUpload:
      return issue_upload(event, observer);
    case Kind::kFree:
      session_.free(handles_base_ + event.handle);
      return {};
    case Kind::kTemplate:
      return define_template(event);
    case Kind::kRequest:
      return make_request(event);
    case Kind::kAbandon: {
      const auto node = requests_.extract(event.request);
      session_.abandon_request(node.mapped().number);
      return {};
    }
    case Kind::kWait:
    case Kind::kPoll:
      return wait(event, observer);
    case Kind::kFlush:
      session_.flush();
      return {};
    case Kind::kGreeting: {
      const Result<wire::HelloReply> greeting = session_.server_info(observer);
      return greeting ? Status() : greeting.error();
    }
    case Kind::kEnd:
      break;
  }
  return {};
}

Status Replay::issue_record(const RecordedEvent& event, WaitObserver& observer) {
  Record record = event.record;
  handles_.clear();
  for (const Handle handle : record.handles) handles_.push_back(handles_base_ + handle);
  record.handles = handles_;
  if (record.number >= wire::kFirstTemplate) {
    record.number = templates_[record.number - wire::kFirstTemplate];
  } else if (record.number == static_cast<uint32_t>(wire::Command::kForgetTemplates)) {
    templates_.clear();
  }
  if (event.request_at != RecordedEvent::kAsksNothing) {
    immediates_.assign(record.immediates.begin(), record.immediates.end());
    const uint64_t request = requests_.at(event.request).number;
    std::memcpy(immediates_.data() + event.request_at, &request, sizeof request);
    record.immediates = immediates_;
  }
  return session_.append(event.stream, record, observer);
}

Status Replay::issue_upload(const RecordedEvent& event, WaitObserver& observer) {
  Payload payload;
  if (recording_.facts().keeps_bytes) {
    payload = {event.bytes, nullptr};
  } else {
    payload = {{zeros_.get(), static_cast<size_t>(event.size_bytes)}, zeros_};
  }
  return session_.upload(event.stream, handles_base_ + event.handle, event.storage_size_bytes,
                         event.offset_bytes, std::move(payload), observer);
}

Status Replay::define_template(const RecordedEvent& event) {
  const Result<uint32_t> number = session_.define_template(event.bytes);
  if (!number) return number.error();
  templates_.push_back(*number);
  return {};
}

Status Replay::make_request(const RecordedEvent& event) {
  Request request;
  Destination destination;
  if (event.size_bytes != 0) {
    request.memory.reset(new (std::nothrow) std::byte[event.size_bytes]);
    if (request.memory == nullptr) {
      return Status(Code::kExhausted,
                    "no memory for a reply of " + std::to_string(event.size_bytes) + " bytes");
    }
    destination = {{request.memory.get(), static_cast<size_t>(event.size_bytes)}, request.memory};
  }
  const Result<uint64_t> number = session_.new_request(std::move(destination));
  if (!number) return number.error();
  request.number = *number;
  requests_.insert_or_assign(event.request, std::move(request));
  return {};
}

Status Replay::wait(const RecordedEvent& event, WaitObserver& observer) {
  const auto node = requests_.extract(event.request);
  const uint64_t request = node.mapped().number;
  const Result<wire::Reply> reply =
      event.kind == Kind::kPoll ? poll(request, observer) : session_.wait(request, observer);
  if (!reply) return reply.error();
  if (reply->failed && event.outcome == Outcome::kReplied) {
    return Status(Code::kDevice, "the reply failed, as it did not when it was recorded: " +
                                     reply->error.op + ": " + reply->error.message);
  }
  return {};
}

// A program that polls does so at its own pace, which is not known: here often, without spinning.
Result<wire::Reply> Replay::poll(uint64_t request, WaitObserver& observer) {
  while (true) {
    if (std::optional<Result<wire::Reply>> reply = session_.poll(request)) return *std::move(reply);
    if (!observer.keep_waiting()) return Status(Code::kCancelled, "the poll was interrupted");
    std::this_thread::sleep_for(microseconds(50));
  }
}

}  // namespace rgpu
