// How fast do 64 MiB go through a Session, up and down, beside a bare socket?
//
// Run:      build/dev/bench/runtime/runtime_transfer_bench
// Look for: bytes_per_second of upload and download over that of bare_socket; at least 0.8 on two
//           processors. upload_copied is what an upload costs whose bytes are copied first, all of
//           them into fresh memory. All servers are a thread of this process that keeps the bytes.
#include <benchmark/benchmark.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/session.h"
#include "tests/runtime/scripted_server.h"

namespace rgpu {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using wire::Command;

constexpr size_t kSizeBytes = size_t{64} << 20;

void note_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                          static_cast<int64_t>(kSizeBytes));
}

void bare_socket(benchmark::State& state) {
  asio::io_context io;
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  std::thread server([&] {
    tcp::socket socket = acceptor.accept();
    std::vector<std::byte> bytes(kSizeBytes);
    boost::system::error_code error;
    const auto all = [](const boost::system::error_code& e, size_t) { return e ? 0 : kSizeBytes; };
    while (asio::read(socket, asio::buffer(bytes), all, error) != 0 && !error) {
      asio::write(socket, asio::buffer(bytes, 1), error);
    }
  });
  {
    tcp::socket socket(io);
    socket.connect(acceptor.local_endpoint());
    const std::vector<std::byte> bytes(kSizeBytes, std::byte{1});
    std::byte answer{};
    const auto all = [](const boost::system::error_code& e, size_t) { return e ? 0 : kSizeBytes; };
    for (auto _ : state) {
      asio::write(socket, asio::buffer(bytes), all);
      asio::read(socket, asio::buffer(&answer, 1));
    }
  }
  server.join();
  note_bytes(state);
}

// A session and a server that takes uploads, answers syncs and has something to fetch.
class Transfers {
 public:
  Transfers() : thread_([this] { serve(); }) {
    SessionOptions options;
    options.port = server_.port();
    Result<std::shared_ptr<Session>> session = Session::connect(options);
    if (!session) std::abort();
    session_ = *std::move(session);
  }
  ~Transfers() {
    session_->close();
    thread_.join();
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void upload(Payload payload) {
    WaitObserver observer;
    if (!session_->upload(0, 1, kSizeBytes, 0, std::move(payload), observer).ok()) std::abort();
    if (!session_->sync(observer)) std::abort();
  }
  void fetch(std::span<std::byte> target) {
    WaitObserver observer;
    const Result<uint64_t> request = session_->new_request({target, nullptr});
    if (!request) std::abort();
    const uint64_t words[] = {*request, 0, target.size()};
    const wire::Handle handle = 1;
    const Record record{static_cast<uint32_t>(Command::kFetch), 0, std::span(&handle, 1),
                        std::as_bytes(std::span(words))};
    if (!session_->append(0, record, observer).ok()) std::abort();
    if (!session_->wait(*request, observer)) std::abort();
  }

 private:
  void serve() {
    server_.greet();
    std::vector<std::byte> bytes(kSizeBytes);
    try {
      while (true) {
        const testing::ReceivedBatch batch = server_.read_batch_into(bytes);
        for (const testing::ReceivedRecord& record : batch.records) {
          wire::Reply reply;
          const bool fetches = record.is(Command::kFetch);
          if (!fetches && !record.is(Command::kSync)) continue;
          reply.request = record.word(0);
          reply.payload_size_bytes = fetches ? kSizeBytes : 0;
          server_.reply(reply, std::span(bytes).first(reply.payload_size_bytes));
        }
      }
    } catch (const std::exception&) {  // The goodbye is no batch.
      server_.close();
    }
  }

  testing::ScriptedServer server_;
  std::thread thread_;
  std::shared_ptr<Session> session_;
};

void upload(benchmark::State& state) {
  Transfers transfers;
  const std::vector<std::byte> bytes(kSizeBytes, std::byte{1});
  for (auto _ : state) transfers.upload({bytes, nullptr});
  note_bytes(state);
}

void upload_kept(benchmark::State& state) {
  Transfers transfers;
  const auto bytes = std::make_shared<std::vector<std::byte>>(kSizeBytes, std::byte{1});
  for (auto _ : state) transfers.upload({*bytes, bytes});
  note_bytes(state);
}

void upload_copied(benchmark::State& state) {
  Transfers transfers;
  const std::vector<std::byte> bytes(kSizeBytes, std::byte{1});
  for (auto _ : state) {
    auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    const std::span<const std::byte> span(*copy);
    transfers.upload({span, std::move(copy)});
  }
  note_bytes(state);
}

void download(benchmark::State& state) {
  Transfers transfers;
  std::vector<std::byte> target(kSizeBytes);
  for (auto _ : state) transfers.fetch(target);
  note_bytes(state);
}

BENCHMARK(bare_socket)->UseRealTime();
BENCHMARK(upload)->UseRealTime();
BENCHMARK(upload_kept)->UseRealTime();
BENCHMARK(upload_copied)->UseRealTime();
BENCHMARK(download)->UseRealTime();

}  // namespace
}  // namespace rgpu

BENCHMARK_MAIN();
