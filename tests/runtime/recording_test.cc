// A session with a scripted server is recorded; the file is read, and replayed to another scripted
// server, which must receive what the first one did.
#include "runtime/recording.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/replay.h"
#include "tests/runtime/session_fixture.h"

namespace rgpu::testing {
namespace {

using Kind = RecordedEvent::Kind;

std::vector<std::byte> asking_template() {
  wire::OpTemplate op;
  op.name = "test::asking";
  op.args.resize(2);
  op.args[0].kind = wire::ArgKind::kTensor;
  op.args[1].kind = wire::ArgKind::kScalarInt;
  op.outputs = {{wire::OutputKind::kUnknown, {}}};
  op.replies = true;
  return wire::encode_op_template(op);
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RecordingTest : public SessionTest {
 protected:
  void TearDown() override {
    SessionTest::TearDown();
    std::filesystem::remove(path_);
  }
  SessionOptions recorded(bool bytes = false) const {
    SessionOptions options = SessionTest::options();
    options.record_path = path_;
    options.record_bytes = bytes;
    options.torch_version = "2.13.0";
    return options;
  }
  // An upload, a record that asks, a fetch, a free and a sync; what the server got.
  std::vector<ReceivedBatch> play_program() {
    const std::vector<std::byte> bytes(16, std::byte{7});
    EXPECT_TRUE(session_->upload(0, 1, 32, 8, {bytes, nullptr}, observer_));
    const Result<uint32_t> number = session_->define_template(asking_template());
    EXPECT_TRUE(number);
    const Result<uint64_t> asked = session_->new_request();
    const uint64_t immediates[] = {42, *asked};
    const Handle handles[] = {1, 2};
    EXPECT_TRUE(session_->append(3, {*number, 77, handles, std::as_bytes(std::span(immediates))},
                                 observer_));
    auto asking = wait_in_thread(*asked);
    std::vector<ReceivedBatch> batches{server_.read_batch()};
    server_.reply(reply_to(*asked));
    EXPECT_TRUE(asking.get());
    session_->free(1);
    auto synced = sync_in_thread();
    batches.push_back(server_.read_batch());
    server_.reply(reply_to(batches.back().records.back().word(0)));
    EXPECT_TRUE(synced.get());
    return batches;
  }
  void end() {
    server_.close();
    session_->close();
  }
  Recording open() {
    Result<Recording> recording = Recording::open(path_);
    if (!recording) throw std::runtime_error(recording.error().message());
    return *std::move(recording);
  }
  void overwrite(std::vector<char> bytes) {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
  }
  std::string error() {
    const Result<Recording> recording = Recording::open(path_);
    return recording ? "" : recording.error().message();
  }

  const std::string path_ =
      ::testing::TempDir() + "rgpu_recording_test." + std::to_string(getpid());
};

TEST_F(RecordingTest, HoldsWhatWasIssuedInOrder) {
  start(recorded());
  (void)play_program();
  end();
  const Recording recording = open();
  RecordingReader reader(recording);
  std::vector<Kind> kinds;
  RecordedEvent event;
  while (reader.next(event) && event.kind != Kind::kEnd) {
    kinds.push_back(event.kind);
    if (event.kind == Kind::kUpload) {
      EXPECT_EQ(event.storage_size_bytes, 32u);
      EXPECT_EQ(event.offset_bytes, 8u);
      EXPECT_EQ(event.size_bytes, 16u);
      EXPECT_TRUE(event.bytes.empty());
    }
    if (event.kind == Kind::kRecord && event.record.number >= wire::kFirstTemplate) {
      EXPECT_EQ(event.stream, 3u);
      EXPECT_EQ(event.record.location, 77u);
      EXPECT_EQ(event.record.handles[1], 2u);
      EXPECT_EQ(event.request_at, 8u);
    }
  }
  EXPECT_EQ(event.kind, Kind::kEnd);
  const std::vector<Kind> expected = {
      Kind::kGreeting, Kind::kUpload, Kind::kTemplate, Kind::kRequest, Kind::kRecord,
      Kind::kWait,     Kind::kFree,   Kind::kRequest,  Kind::kRecord,  Kind::kWait};
  EXPECT_EQ(kinds, expected);
  EXPECT_EQ(recording.facts().torch_version, "2.13.0");
  EXPECT_EQ(recording.facts().records, 3u);
  EXPECT_EQ(recording.facts().handle_max, 2u);
  EXPECT_EQ(recording.facts().main_part, expected.size());  // It synchronized at its end.
  EXPECT_TRUE(recording.facts().ends_waiting);
}

class ReplayTest : public RecordingTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ReplayTest, SendsTheSameWithHandlesAndRequestsOfItsOwn) {
  const bool keeps_bytes = GetParam();
  start(recorded(keeps_bytes));
  const std::vector<ReceivedBatch> recorded_batches = play_program();
  end();
  const Recording recording = open();

  ScriptedServer other;
  SessionOptions options = SessionTest::options();
  options.port = other.port();
  const std::shared_ptr<Session> session = *Session::connect(options);
  other.greet();
  constexpr Handle kBase = 100;
  (void)session->new_handles(kBase);
  session->abandon_request(*session->new_request());  // Numbers are others from now on.
  Replay replay(*session, recording);
  auto played = std::async(std::launch::async, [&] {
    WaitObserver observer;
    return replay.play(UINT64_MAX, Replay::Pace::kRecorded, observer);
  });
  for (const ReceivedBatch& expected : recorded_batches) {
    const ReceivedBatch batch = other.read_batch();
    ASSERT_EQ(batch.records.size(), expected.records.size());
    EXPECT_EQ(batch.templates, expected.templates);
    for (size_t index = 0; index < batch.records.size(); ++index) {
      const ReceivedRecord& record = batch.records[index];
      const ReceivedRecord& original = expected.records[index];
      EXPECT_EQ(record.number, original.number);
      EXPECT_EQ(record.location, original.location);
      ASSERT_EQ(record.handles.size(), original.handles.size());
      for (size_t at = 0; at < record.handles.size(); ++at) {
        EXPECT_EQ(record.handles[at], original.handles[at] + kBase);
      }
      EXPECT_EQ(record.immediates.size(), original.immediates.size());
    }
    for (const auto& segment : batch.segments) {
      EXPECT_EQ(segment, std::vector(16, std::byte{keeps_bytes ? uint8_t{7} : uint8_t{0}}));
    }
    const ReceivedRecord& last = batch.records.back();
    const size_t request_at = last.is(wire::Command::kSync) ? 0 : 1;
    EXPECT_NE(last.word(request_at), expected.records.back().word(request_at));
    EXPECT_NE(played.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    other.reply(reply_to(last.word(request_at)));
  }
  const Status status = played.get();
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(replay.figures().events, recording.facts().events);
  other.close();
}

INSTANTIATE_TEST_SUITE_P(Bytes, ReplayTest, ::testing::Bool());

TEST_F(RecordingTest, APolledReplyIsPolledAgain) {
  start(recorded());
  const Result<uint64_t> request = session_->new_request();
  const auto immediates = std::as_bytes(std::span(&*request, 1));
  ASSERT_TRUE(
      session_->append(2, {number(wire::Command::kSyncStream), 0, {}, immediates}, observer_));
  EXPECT_FALSE(session_->poll(*request));  // Not recorded: it found nothing.
  session_->flush();
  (void)server_.read_until(wire::Command::kSyncStream);
  server_.reply(reply_to(*request));
  while (!session_->poll(*request)) std::this_thread::yield();
  end();
  const Recording recording = open();
  EXPECT_EQ(recording.facts().events, 5u);  // Greeting, request, record, flush, poll.
  EXPECT_EQ(recording.facts().waits, 0u);

  ScriptedServer other;
  SessionOptions options = SessionTest::options();
  options.port = other.port();
  const std::shared_ptr<Session> session = *Session::connect(options);
  other.greet();
  ASSERT_TRUE(session->server_info(observer_));
  const uint64_t waits_before = session->stats().waits;
  Replay replay(*session, recording);
  auto played = std::async(std::launch::async, [&] {
    WaitObserver observer;
    return replay.play(UINT64_MAX, Replay::Pace::kAtOnce, observer);
  });
  other.reply(reply_to(other.read_until(wire::Command::kSyncStream).word(0)));
  EXPECT_TRUE(played.get());
  EXPECT_EQ(session->stats().waits, waits_before);
  other.close();
}

TEST_F(RecordingTest, AReplyThatFailsAnewEndsTheReplay) {
  start(recorded());
  (void)play_program();
  end();
  const Recording recording = open();
  ScriptedServer other;
  SessionOptions options = SessionTest::options();
  options.port = other.port();
  const std::shared_ptr<Session> session = *Session::connect(options);
  other.greet();
  Replay replay(*session, recording);
  auto played = std::async(std::launch::async, [&] {
    WaitObserver observer;
    return replay.play(UINT64_MAX, Replay::Pace::kAtOnce, observer);
  });
  wire::Reply failed = reply_to(other.read_batch().records.back().word(1));
  failed.failed = true;
  failed.error.code = Code::kDevice;
  failed.error.message = "no such luck";
  other.reply(failed);
  const Status status = played.get();
  EXPECT_EQ(status.code(), Code::kDevice);
  EXPECT_NE(status.message().find("no such luck"), std::string::npos) << status.message();
  other.close();
}

TEST_F(RecordingTest, AWrongFileIsRefusedInOneLine) {
  EXPECT_NE(error().find("cannot be opened"), std::string::npos);
  start(recorded());
  (void)play_program();
  end();
  const std::vector<char> good = read_file(path_);
  ASSERT_EQ(error(), "");

  std::vector<char> bytes = good;
  bytes[bytes.size() / 2] ^= 1;
  overwrite(bytes);
  EXPECT_NE(error().find("is damaged"), std::string::npos) << error();
  overwrite({good.begin(), good.end() - 9});
  EXPECT_NE(error().find("did not end its session"), std::string::npos) << error();
  bytes = good;
  bytes[8] = 2;
  overwrite(bytes);
  EXPECT_NE(error().find("format version 2"), std::string::npos) << error();
  overwrite({'h', 'e', 'l', 'l', 'o'});
  EXPECT_NE(error().find("is none"), std::string::npos) << error();
  EXPECT_EQ(error().find('\n'), std::string::npos);
}

TEST_F(RecordingTest, AFullDiskDoesNotDisturbTheProgram) {
  SessionOptions full = recorded();
  full.record_path = "/dev/full";
  ::testing::internal::CaptureStderr();
  start(full);
  (void)play_program();
  end();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("/dev/full is not recorded"), std::string::npos) << said;
}

TEST_F(RecordingTest, AFileThatCannotBeMadeDoesNotDisturbTheProgram) {
  SessionOptions nowhere = recorded();
  nowhere.record_path = "/nonexistent/recording";
  ::testing::internal::CaptureStderr();
  start(nowhere);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("/nonexistent/recording is not recorded"), std::string::npos) << said;
  (void)play_program();
}

TEST_F(RecordingTest, TheEnvironmentNamesTheFile) {
  static int repeated = 0;  // A second session of one name would go to another file.
  const std::string stem = path_ + "." + std::to_string(++repeated) + ".";
  const std::string pattern = stem + "%p";
  setenv("RGPU_RECORD", pattern.c_str(), 1);
  start();
  unsetenv("RGPU_RECORD");
  expect_sync_works();
  end();
  const std::string named = stem + std::to_string(getpid());
  const Result<Recording> recording = Recording::open(named);
  std::filesystem::remove(named);
  ASSERT_TRUE(recording) << recording.error().message();
  EXPECT_EQ(recording->facts().waits, 1u);
}

}  // namespace
}  // namespace rgpu::testing
