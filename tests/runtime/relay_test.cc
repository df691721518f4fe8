// A Relay on a thread of its own, between a Session and a scripted server. How long things take is
// not asserted, only that nothing arrives before its time.
#include "runtime/relay.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <thread>

#include "tests/runtime/session_fixture.h"

namespace rgpu::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class RelayTest : public SessionTest {
 protected:
  void open(RelayOptions relay_options) {
    relay_options.target.port = server_.port();
    relay_ = std::make_shared<Relay>(io_, relay_options);
    const Status opened = relay_->open();
    if (!opened) throw std::runtime_error(opened.message());
    thread_ = std::thread([this] { io_.run(); });
  }
  void TearDown() override {
    SessionTest::TearDown();
    if (thread_.joinable()) stop();
  }
  RelayFigures stop() {
    boost::asio::post(io_, [this] { relay_->stop(); });
    thread_.join();
    return relay_->figures();
  }
  SessionOptions through_relay() const {
    SessionOptions through = options();
    through.port = relay_->port();
    return through;
  }

  boost::asio::io_context io_;
  std::shared_ptr<Relay> relay_;
  std::thread thread_;
};

TEST_F(RelayTest, PassesEverythingOnInOrder) {
  open({});
  start(through_relay());
  std::vector<std::byte> source(3 << 20);
  for (size_t index = 0; index < source.size(); ++index) {
    source[index] = static_cast<std::byte>(index * 13 >> 3);
  }
  ASSERT_TRUE(session_->upload(0, 1, source.size(), 0, {source, nullptr}, observer_));
  auto synced = sync_in_thread();
  const ReceivedBatch batch = server_.read_batch();
  EXPECT_EQ(batch.segments.at(0), source);
  server_.reply(reply_to(batch.records.back().word(0)));
  ASSERT_TRUE(synced.get());
  const SessionStats stats = session_->stats();
  const RelayFigures figures = stop();
  EXPECT_EQ(figures.connections, 1u);
  EXPECT_EQ(figures.bytes_up, stats.bytes_out);
  EXPECT_EQ(figures.bytes_down, stats.bytes_in);
  EXPECT_GE(figures.turns, 1u);
}

TEST_F(RelayTest, ARoundTripTakesItsTime) {
  RelayOptions far;
  far.round_trip = milliseconds(20);
  open(far);
  start(through_relay());
  const Clock::time_point before = Clock::now();
  expect_sync_works();
  EXPECT_GE(Clock::now() - before, far.round_trip);
}

TEST_F(RelayTest, TheLineChangesUnderAConnection) {
  open({});
  start(through_relay());
  const auto set_line = [this](std::chrono::nanoseconds round_trip) {
    const auto before = std::make_shared<std::promise<RelayFigures>>();
    boost::asio::post(io_, [this, before, round_trip] {
      const RelayFigures figures = relay_->figures();
      relay_->set_line(round_trip, 0);
      before->set_value(figures);
    });
    return before->get_future().get();
  };
  (void)set_line(milliseconds(20));
  const Clock::time_point began = Clock::now();
  expect_sync_works();
  const Clock::time_point ended = Clock::now();
  EXPECT_GE(ended - began, milliseconds(20));
  const RelayFigures figures = set_line({});
  EXPECT_GE(figures.first_delivered_up, began + milliseconds(10));
  EXPECT_GE(figures.last_received_down, figures.first_delivered_up);
  EXPECT_LE(figures.last_received_down, ended - milliseconds(10));
  EXPECT_EQ(set_line({}).first_delivered_up, Clock::time_point{});  // Since the line was set.
}

TEST_F(RelayTest, TheCapHolds) {
  RelayOptions narrow;
  narrow.megabits_per_s = 8;  // 1 MB/s.
  open(narrow);
  start(through_relay());
  const std::vector<std::byte> source(50'000);
  const Clock::time_point before = Clock::now();
  ASSERT_TRUE(session_->upload(0, 1, source.size(), 0, {source, nullptr}, observer_));
  expect_sync_works();
  EXPECT_GE(Clock::now() - before, milliseconds(50));
}

TEST_F(RelayTest, ACutEndsConnectionsAndRefusesNewOnesForAWhile) {
  RelayOptions cut;
  cut.cut_at = milliseconds(50);
  cut.down_for = std::chrono::hours(1);
  open(cut);
  start(through_relay());
  EXPECT_EQ(session_->sync(observer_).error().code(), Code::kDisconnected);
  EXPECT_NE(Session::connect(through_relay()).error().message().find("Connection refused"),
            std::string::npos);
}

TEST_F(RelayTest, AServerThatClosesIsPassedOn) {
  open({});
  start(through_relay());
  server_.close();
  EXPECT_EQ(session_->sync(observer_).error().code(), Code::kDisconnected);
}

TEST(RelayAddress, IsHostAndPort) {
  EXPECT_EQ(parse_relay_address("10.0.0.1:80")->host, "10.0.0.1");
  EXPECT_EQ(parse_relay_address("10.0.0.1:80")->port, 80);
  EXPECT_EQ(parse_relay_address(":7001")->host, "127.0.0.1");
  for (const char* wrong : {"", "host", "host:", "host:x", "host:80x", "host:65536"}) {
    EXPECT_FALSE(parse_relay_address(wrong)) << wrong;
  }
}

TEST(RelayFigures, AreOneLineOfJson) {
  EXPECT_EQ((RelayFigures{1, 2, 3, 4}).to_json(),
            "{\"connections\": 1, \"bytes_up\": 2, \"bytes_down\": 3, \"turns\": 4}");
}

}  // namespace
}  // namespace rgpu::testing
