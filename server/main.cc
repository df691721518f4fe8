// rgpu-opserver: the executable. Options, logging, and which engine runs the ops.

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "server/listener.h"
#include "server/options.h"
#include "server/torch/torch_engine.h"
#include "wire/frame.h"

namespace {

void exit_with_parent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) std::exit(EXIT_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace rgpu::server;
  const ParsedOptions parsed = parse_options(argc, argv);
  if (!parsed.run) return parsed.exit_status;
  const Options& options = parsed.options;
  if (options.exit_with_parent) exit_with_parent();
  spdlog::set_default_logger(spdlog::stderr_color_mt("rgpu"));
  spdlog::set_level(spdlog::level::from_str(options.log_level));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %L [%P] %v");

  TorchEngineOptions engine_options{options.device,
                                    options.devices,
                                    options.threads,
                                    options.memory_limit_bytes,
                                    options.graph_cache == "none" ? "" : options.graph_cache,
                                    options.graph_cache_size_bytes,
                                    options.compiler};
  const rgpu::Result<std::string> device = resolve_device_type(engine_options);
  if (!device) {
    spdlog::error("{}", device.error().message());
    return EXIT_FAILURE;
  }
  engine_options.device = *device;
  const rgpu::Result<IoChoice> io = choose_io(options.io);
  if (!io) {
    spdlog::error("{}", io.error().message());
    return EXIT_FAILURE;
  }
  const auto listener = std::make_shared<Listener>(
      options, *io,
      [engine_options](const auto& context) { return make_torch_engine(engine_options, context); });
  const rgpu::Status opened = listener->open();
  if (!opened.ok()) {
    spdlog::error("{}", opened.message());
    return EXIT_FAILURE;
  }
  // rgpu-run reads this line, also of servers of other versions: only ever add to its end.
  std::printf("rgpu-opserver listening on %s:%u (device %s, PyTorch %s, rgpu %s, protocol %u)\n",
              options.bind_address.c_str(), listener->port(), device->c_str(), torch_version(),
              RGPU_VERSION, rgpu::wire::kProtocolVersion);
  std::fflush(stdout);
  listener->run();
  return EXIT_SUCCESS;
}
