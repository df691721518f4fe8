// What must hold over every transport, under every flush policy and with buffers of every size:
// several threads issue a random program on several streams, with events between them, and every
// value they ask for is the one that a plain interpreter would have.

#include <gtest/gtest.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/relay.h"
#include "runtime/session.h"
#include "tests/conformance/model_server.h"
#include "tests/runtime/scripted_server.h"

namespace rgpu::testing {
namespace {

using wire::Command;
using Words = std::vector<uint64_t>;

constexpr uint32_t kStreams = 5;
constexpr int kThreads = 3;

struct Sizes {
  const char* name;
  uint32_t ring_size_bytes;
  uint32_t batch_size_bytes_max;
  uint64_t staged_size_bytes_max;
};
constexpr Sizes kSizes[] = {
    {"usual", 1u << 20, 256u << 10, uint64_t{256} << 20},
    {"one_record", 128, 256u << 10, 1},  // A ring of one or two records, one upload at a time.
    {"tiny_frames", 1u << 16, 1, uint64_t{1} << 20},  // A record a batch.
};

struct Carrier {
  const char* name;
  ModelServer::Transport transport;
  server::Io io;
  bool relay;
};
constexpr Carrier kCarriers[] = {
    {"pipe", ModelServer::Transport::kPipe, server::Io::kEpoll, false},
    {"tcp", ModelServer::Transport::kTcp, server::Io::kEpoll, false},
    {"tcp_io_uring", ModelServer::Transport::kTcp, server::Io::kIoUring, false},
    {"relay", ModelServer::Transport::kTcp, server::Io::kEpoll, true},
};

struct Case {
  Carrier carrier;
  const char* policy;
  Sizes sizes;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Carrier& carrier : kCarriers) {
    for (const char* policy : {"per_op", "sync", "bytes=200", "deadline=50", "adaptive"}) {
      for (const Sizes& sizes : kSizes) cases.push_back({carrier, policy, sizes});
    }
  }
  return cases;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name =
      std::string(info.param.carrier.name) + "_" + info.param.policy + "_" + info.param.sizes.name;
  for (char& c : name) c = c == '=' ? '_' : c;
  return name;
}

// The relay of a test, on a thread of its own.
class RelayThread {
 public:
  explicit RelayThread(uint16_t target_port) {
    RelayOptions options;
    options.target.port = target_port;
    options.round_trip = std::chrono::microseconds(400);
    relay_ = std::make_shared<Relay>(io_, options);
    const Status opened = relay_->open();
    if (!opened.ok()) throw std::runtime_error(opened.message());
    thread_ = std::thread([this] { io_.run(); });
  }
  ~RelayThread() {
    boost::asio::post(io_, [relay = relay_] { relay->stop(); });
    thread_.join();
  }
  [[nodiscard]] uint16_t port() const { return relay_->port(); }

 private:
  boost::asio::io_context io_;
  std::shared_ptr<Relay> relay_;
  std::thread thread_;
};

// A storage and what is in it.
struct Cell {
  Handle handle = 0;
  Words words;
};

// Cells that one thread has made and another goes on with, behind an event.
struct HandedOver {
  Cell cell;
  Handle event = 0;
};

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& test = GetParam();
    if (test.carrier.io == server::Io::kIoUring) {
      if (const Status possible = server::probe_io_uring(); !possible.ok()) {
        GTEST_SKIP() << possible.message();
      }
    }
    server_.emplace(test.carrier.transport, test.carrier.io);
    if (test.carrier.relay) relay_.emplace(server_->port());
    SessionOptions options;
    options.socket = server_->socket();
    options.port = test.carrier.relay ? relay_->port() : server_->port();
    options.flush_policy = test.policy;
    options.ring_size_bytes = test.sizes.ring_size_bytes;
    options.batch_size_bytes_max = test.sizes.batch_size_bytes_max;
    options.staged_size_bytes_max = test.sizes.staged_size_bytes_max;
    Result<std::shared_ptr<Session>> session = Session::connect(options);
    ASSERT_TRUE(session) << session.error().message();
    session_ = *session;
    axpy_ = session_->define_template(make_template("model::axpy", 3, 1)).value();
    add_ = session_->define_template(make_template("model::add_", 1, 1)).value();
  }
  void TearDown() override {
    if (session_) session_->close();
    session_.reset();
    server_.reset();
    relay_.reset();
  }

  void issue(uint32_t number, uint32_t stream, std::span<const Handle> handles,
             std::span<const uint64_t> immediates) {
    const Record record{number, 1, handles, std::as_bytes(immediates)};
    const Status status = session_->append(stream, record, observer_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void command(Command command, uint32_t stream, std::initializer_list<Handle> handles,
               std::initializer_list<uint64_t> immediates) {
    issue(static_cast<uint32_t>(command), stream, {handles.begin(), handles.size()},
          {immediates.begin(), immediates.size()});
  }

  std::optional<ModelServer> server_;
  std::optional<RelayThread> relay_;
  std::shared_ptr<Session> session_;
  WaitObserver observer_;
  uint32_t axpy_ = 0;
  uint32_t add_ = 0;
  std::mutex mailbox_mutex_;
  std::vector<HandedOver> mailbox_;
  friend class Program;
};

// One thread's part.
class Program {
 public:
  Program(Conformance& test, uint64_t seed) : test_(test), random_(seed) {
    for (int i = 0; i < 3; ++i) upload();
  }

  void step() {
    switch (below(13)) {
      case 0:
        return upload();
      case 1:
      case 2:
        return axpy();
      case 3:
      case 4:
        return add();
      case 5:
        return check_fetched(pick());
      case 6:
        return start_fetch();
      case 7:
        return finish_fetch();
      case 8:
        return free_one();
      case 9:
        return use_event();
      case 10:
        return hand_over();
      case 11:
        return take_over();
      default:
        return synchronize();
    }
  }
  void finish() {
    while (!fetches_.empty()) finish_fetch();
    for (const Cell& cell : cells_) check_fetched(cell);
  }

 private:
  struct Fetch {
    uint64_t request = 0;
    std::shared_ptr<Words> target;
    Words expected;
  };

  uint64_t below(uint64_t bound) { return random_() % bound; }
  uint32_t stream() { return static_cast<uint32_t>(below(kStreams)); }
  Cell& pick() { return cells_[below(cells_.size())]; }

  void upload() {
    Cell cell{test_.session_->new_handles(1), Words(below(8) == 0 ? 3000 : 1 + below(8))};
    for (uint64_t& word : cell.words) word = random_();
    auto copy = std::make_shared<Words>(cell.words);
    const auto bytes = std::as_bytes(std::span(*copy));
    const Status status = test_.session_->upload(stream(), cell.handle, bytes.size(), 0,
                                                 {bytes, copy}, test_.observer_);
    ASSERT_TRUE(status.ok()) << status.message();
    keep(std::move(cell));
  }
  void keep(Cell cell) {
    cells_.push_back(std::move(cell));
    if (cells_.size() > 12) free_one();
  }
  void axpy() {
    const Cell& x = pick();
    const Cell* y = &pick();
    if (y->words.size() < x.words.size()) y = &x;
    const uint64_t k = below(1000);
    Cell out{test_.session_->new_handles(1), Words(x.words.size())};
    for (size_t i = 0; i < out.words.size(); ++i) out.words[i] = k * x.words[i] + y->words[i];
    const std::array<Handle, 3> handles{x.handle, y->handle, out.handle};
    test_.issue(test_.axpy_, stream(), handles, std::array{k});
    keep(std::move(out));
  }
  void add() {
    Cell& x = pick();
    const uint64_t k = below(1000);
    for (uint64_t& word : x.words) word += k;
    test_.issue(test_.add_, stream(), std::array{x.handle}, std::array{k});
  }
  Fetch fetch(const Cell& cell) {
    Fetch fetch{0, std::make_shared<Words>(cell.words.size()), cell.words};
    const auto bytes = std::as_writable_bytes(std::span(*fetch.target));
    const Result<uint64_t> request = test_.session_->new_request({bytes, fetch.target});
    EXPECT_TRUE(request);
    fetch.request = *request;
    test_.command(Command::kFetch, stream(), {cell.handle}, {*request, 0, bytes.size()});
    return fetch;
  }
  void check(const Fetch& fetch) {
    const Result<wire::Reply> reply = test_.session_->wait(fetch.request, test_.observer_);
    ASSERT_TRUE(reply) << reply.error().message();
    ASSERT_EQ(*fetch.target, fetch.expected);
  }
  void check_fetched(const Cell& cell) { check(fetch(cell)); }
  void start_fetch() {
    if (fetches_.size() < 20) fetches_.push_back(fetch(pick()));
  }
  void finish_fetch() {
    if (fetches_.empty()) return;
    const size_t index = below(fetches_.size());
    check(fetches_[index]);
    fetches_.erase(fetches_.begin() + static_cast<ptrdiff_t>(index));
  }
  void free_one() {
    if (cells_.size() < 3) return;
    const size_t index = below(cells_.size());
    test_.session_->free(cells_[index].handle);
    cells_.erase(cells_.begin() + static_cast<ptrdiff_t>(index));
  }
  Handle record_event(uint32_t on) {
    const Handle event = test_.session_->new_handles(1);
    test_.command(Command::kRecordEvent, on, {event}, {});
    return event;
  }
  void use_event() {
    const uint32_t on = stream();
    const Handle event = record_event(on);
    test_.command(Command::kWaitEvent, stream(), {event}, {});
    const uint64_t request = test_.session_->new_request().value();
    test_.command(Command::kQueryEvent, on, {event}, {request});
    test_.session_->free(event);
    if (below(2) == 0) {
      ASSERT_TRUE(test_.session_->wait(request, test_.observer_));
    } else {
      test_.session_->disown_request(request);
    }
  }
  void hand_over() {
    if (cells_.size() < 3) return;
    Cell cell = std::move(cells_.back());
    cells_.pop_back();
    const Handle event = record_event(stream());
    const std::lock_guard lock(test_.mailbox_mutex_);
    test_.mailbox_.push_back({std::move(cell), event});
  }
  void take_over() {
    HandedOver taken;
    {
      const std::lock_guard lock(test_.mailbox_mutex_);
      if (test_.mailbox_.empty()) return;
      taken = std::move(test_.mailbox_.back());
      test_.mailbox_.pop_back();
    }
    test_.command(Command::kWaitEvent, stream(), {taken.event}, {});
    test_.session_->free(taken.event);
    keep(std::move(taken.cell));
  }
  void synchronize() {
    if (below(2) == 0) {
      ASSERT_TRUE(test_.session_->sync(test_.observer_));
    } else {
      ASSERT_TRUE(test_.session_->sync_stream(stream(), test_.observer_));
    }
  }

  Conformance& test_;
  std::mt19937_64 random_;
  std::vector<Cell> cells_;
  std::vector<Fetch> fetches_;
};

TEST_P(Conformance, EveryValueIsTheInterpreters) {
  constexpr int kSteps = 120;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([this, i] {
      Program program(*this, 1000 + static_cast<uint64_t>(i));
      for (int step = 0; step < kSteps && !HasFatalFailure(); ++step) program.step();
      program.finish();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Result<wire::Reply> done = session_->sync(observer_);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_TRUE(session_->alive()) << session_->status().message();
}

TEST_P(Conformance, NothingWaitsUntilAValueIsAskedFor) {
  if (std::string(GetParam().sizes.name) != "usual") return;  // A full ring is a wait.
  const Handle x = session_->new_handles(1);
  auto words = std::make_shared<Words>(Words{1, 2, 3});
  const auto bytes = std::as_bytes(std::span(*words));
  ASSERT_TRUE(session_->upload(1, x, bytes.size(), 0, {bytes, words}, observer_).ok());
  for (uint64_t k = 1; k <= 500; ++k) {
    issue(add_, static_cast<uint32_t>(k % kStreams), std::array{x}, std::array{k});
    const Handle event = session_->new_handles(1);
    command(Command::kRecordEvent, static_cast<uint32_t>(k % kStreams), {event}, {});
    command(Command::kWaitEvent, 0, {event}, {});
    session_->free(event);
  }
  EXPECT_EQ(session_->stats().waits, 0u);
  Words got(3);
  const uint64_t request =
      session_->new_request({std::as_writable_bytes(std::span(got)), {}}).value();
  command(Command::kFetch, 2, {x}, {request, 0, sizeof(uint64_t) * 3});
  ASSERT_TRUE(session_->wait(request, observer_));
  EXPECT_EQ(got, (Words{125'251, 125'252, 125'253}));
  EXPECT_EQ(session_->stats().waits, 1u);
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace rgpu::testing
