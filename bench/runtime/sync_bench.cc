// How much does Session::sync() add to a round trip of the bare socket?
//
// Run:      build/dev/bench/runtime/runtime_sync_bench
// Look for: the difference between sync and bare_socket: two thread switches here (to the I/O
// thread
//           and back) and a wake-up, some tens of µs on a quiet machine. Both servers are a thread
//           of this process and do no work.
#include <benchmark/benchmark.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <memory>
#include <thread>

#include "runtime/session.h"
#include "tests/runtime/scripted_server.h"

namespace rgpu {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr size_t kMessageSizeBytes = 64;

void bare_socket(benchmark::State& state) {
  asio::io_context io;
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  std::thread server([&] {
    tcp::socket socket = acceptor.accept();
    socket.set_option(tcp::no_delay(true));
    std::array<std::byte, kMessageSizeBytes> bytes{};
    boost::system::error_code error;
    while (asio::read(socket, asio::buffer(bytes), error) != 0 && !error) {
      asio::write(socket, asio::buffer(bytes), error);
    }
  });
  {
    tcp::socket socket(io);
    socket.connect(acceptor.local_endpoint());
    socket.set_option(tcp::no_delay(true));
    std::array<std::byte, kMessageSizeBytes> bytes{};
    for (auto _ : state) {
      asio::write(socket, asio::buffer(bytes));
      asio::read(socket, asio::buffer(bytes));
    }
  }
  server.join();
}

void sync(benchmark::State& state) {
  testing::ScriptedServer server;
  std::thread thread([&] {
    server.greet();
    while (true) {
      try {
        wire::Reply reply;
        reply.request = server.read_until(wire::Command::kSync).word(0);
        server.reply(reply);
      } catch (const std::exception&) {  // The goodbye is no batch.
        break;
      }
    }
    server.close();
  });
  SessionOptions options;
  options.port = server.port();
  Result<std::shared_ptr<Session>> session = Session::connect(options);
  if (!session) std::abort();
  WaitObserver observer;
  for (auto _ : state) {
    if (!(*session)->sync(observer)) std::abort();
  }
  (*session)->close();
  thread.join();
}

BENCHMARK(bare_socket)->UseRealTime();
BENCHMARK(sync)->UseRealTime();

}  // namespace
}  // namespace rgpu

BENCHMARK_MAIN();
