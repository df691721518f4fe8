// rgpu-relay: a user-space TCP relay that stands for a long line. See relay.h.
#include <CLI/CLI.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdio>

#include "runtime/relay.h"

namespace {

struct CommandLine {
  std::string listen = "127.0.0.1:0";
  std::string to;
  double rtt_ms = 0;
  double mbit = 0;
  double cut_at_s = -1;
  double down_for_s = 0;
};

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

void declare(CLI::App& app, CommandLine& line) {
  app.add_option("--listen", line.listen, "HOST:PORT to listen on; port 0: a free one")
      ->capture_default_str();
  app.add_option("--to", line.to, "HOST:PORT of the server")->required();
  app.add_option("--rtt-ms", line.rtt_ms, "Delay, half of it in each direction")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--mbit", line.mbit, "Cap per direction over all connections; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--cut-at", line.cut_at_s,
                 "Seconds after the first connection: CLOSES every connection at once, and what is "
                 "in flight is lost")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--down-for", line.down_for_s,
                 "Seconds in which connections are refused after the cut; without --cut-at, from "
                 "the beginning")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

rgpu::Result<rgpu::RelayOptions> relay_options(const CommandLine& line) {
  rgpu::RelayOptions options;
  const rgpu::Result<rgpu::RelayAddress> listen = rgpu::parse_relay_address(line.listen);
  if (!listen) return listen.error();
  const rgpu::Result<rgpu::RelayAddress> target = rgpu::parse_relay_address(line.to);
  if (!target) return target.error();
  options.listen = *listen;
  options.target = *target;
  options.round_trip = nanoseconds_of(line.rtt_ms / 1e3);
  options.megabits_per_s = line.mbit;
  if (line.cut_at_s >= 0) options.cut_at = nanoseconds_of(line.cut_at_s);
  options.down_for = nanoseconds_of(line.down_for_s);
  return options;
}

int fail(const rgpu::Status& status) {
  std::fprintf(stderr, "rgpu-relay: %s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes the loopback interface look like a long line.", "rgpu-relay");
  CommandLine line;
  declare(app, line);
  CLI11_PARSE(app, argc, argv);
  const rgpu::Result<rgpu::RelayOptions> options = relay_options(line);
  if (!options) return fail(options.error());
  boost::asio::io_context io(1);
  const auto relay = std::make_shared<rgpu::Relay>(io, *options);
  boost::asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code&, int) { relay->stop(); });
  if (const rgpu::Status opened = relay->open(); !opened) return fail(opened);
  std::printf("listening on %s:%u\n", options->listen.host.c_str(), relay->port());
  std::fflush(stdout);
  io.run();
  std::printf("%s\n", relay->figures().to_json().c_str());
  return 0;
}
