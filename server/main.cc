// rgpu-opserver: the executable. Options, logging, and which engine runs the ops.

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "server/cuda/make_cuda_engine.h"
#include "server/listener.h"
#include "server/options.h"
#include "server/session_engine.h"
#ifdef RGPU_TORCH
#include "server/torch/torch_engine.h"
#endif
#include "wire/frame.h"

namespace {

void exit_with_parent() {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) std::exit(EXIT_SUCCESS);
}

// PyTorch's part. A build without it serves CUDA programs alone.
struct Ops {
  rgpu::server::EngineFactory make_engine;
  std::string device = "none";
  std::string torch_version = "none";
};

#ifdef RGPU_TORCH
rgpu::Result<Ops> prepare_ops(const rgpu::server::Options& options) {
  using namespace rgpu::server;
  TorchEngineOptions engine_options{options.device,
                                    options.devices,
                                    options.threads,
                                    options.memory_limit_bytes,
                                    options.graph_cache == "none" ? "" : options.graph_cache,
                                    options.graph_cache_size_bytes,
                                    options.compiler};
  const rgpu::Result<std::string> device = resolve_device_type(engine_options);
  if (!device) return device.error();
  engine_options.device = *device;
  return Ops{[engine_options](const EngineContext& context) {
               return make_torch_engine(engine_options, context);
             },
             *device, torch_version()};
}
#else
rgpu::Result<Ops> prepare_ops(const rgpu::server::Options&) { return Ops{}; }
#endif

rgpu::server::EngineFactory cuda_engines(const rgpu::server::Options& options) {
  using namespace rgpu::server;
  if (options.cuda == "none") return {};
  const CudaEngineOptions engine_options{options.cuda,
                                         options.cuda_devices,
                                         options.cuda_capability,
                                         options.cuda_memory_bytes,
                                         options.threads,
                                         options.cuda_launch_delay_us};
  return [engine_options](const EngineContext& context) {
    return make_cuda_engine(engine_options, context);
  };
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

  const rgpu::Result<Ops> ops = prepare_ops(options);
  if (!ops) {
    spdlog::error("{}", ops.error().message());
    return EXIT_FAILURE;
  }
  const rgpu::Result<IoChoice> io = choose_io(options.io);
  if (!io) {
    spdlog::error("{}", io.error().message());
    return EXIT_FAILURE;
  }
  const EngineFactories factories{ops->make_engine, cuda_engines(options)};
  const auto listener = std::make_shared<Listener>(options, *io, [factories](const auto& context) {
    return make_session_engine(factories, context);
  });
  const rgpu::Status opened = listener->open();
  if (!opened.ok()) {
    spdlog::error("{}", opened.message());
    return EXIT_FAILURE;
  }
  // rgpu-run reads this line, also of servers of other versions: only ever add to its end.
  std::printf("rgpu-opserver listening on %s:%u (device %s, PyTorch %s, rgpu %s, protocol %u)\n",
              options.bind_address.c_str(), listener->port(), ops->device.c_str(),
              ops->torch_version.c_str(), RGPU_VERSION, rgpu::wire::kProtocolVersion);
  std::fflush(stdout);
  listener->run();
  return EXIT_SUCCESS;
}
