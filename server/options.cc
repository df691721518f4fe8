#include "server/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace rgpu::server {

std::string default_graph_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/rgpu";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    return std::string(home) + "/.cache/rgpu";
  }
  return "none";
}

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app("Runs PyTorch ops for rgpu clients: one worker process a session.", "rgpu-opserver");
  app.add_option("--device", options.device, "Where ops run. auto: an accelerator if there is one")
      ->check(CLI::IsMember({"auto", "cuda", "cpu"}))
      ->capture_default_str();
  app.add_option("--devices", options.devices, "With the CPU: how many devices clients see")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--memory-limit", options.memory_limit_bytes,
                 "What a session's tensors may hold on each device: bytes, or with a unit (512M, "
                 "2GB); 0: no limit")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  options.graph_cache = default_graph_cache();
  app.add_option("--graph-cache", options.graph_cache,
                 "Folder for graphs of torch.compile and what they compile to, shared by all "
                 "sessions; none: keep nothing")
      ->capture_default_str();
  app.add_option("--graph-cache-size", options.graph_cache_size_bytes,
                 "What that folder may hold: bytes, or with a unit")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  app.add_option("--compiler", options.compiler,
                 "Python that has the rgpu package, to compile graphs with; without it they are "
                 "interpreted. The installed rgpu-opserver gives its own");
  app.add_option("--threads", options.threads,
                 "ATen threads of each session, or threads of an emulated GPU; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--cuda", options.cuda,
                 "What runs CUDA programs. driver: this machine's GPU; emulated: its CPU; auto: a "
                 "GPU if there is one; null: takes everything and does nothing; none: refuse them")
      ->check(CLI::IsMember({"auto", "driver", "emulated", "null", "none"}))
      ->capture_default_str();
  std::string capability = "8.9";
  app.add_option("--cuda-arch", capability, "Compute capability of an emulated GPU")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool valid =
                (text.size() == 3 && text[1] == '.') || (text.size() == 4 && text[2] == '.');
            return valid ? std::string() : "not MAJOR.MINOR: " + text;
          },
          "MAJOR.MINOR"))
      ->capture_default_str();
  app.add_option("--cuda-devices", options.cuda_devices, "How many GPUs are emulated")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--cuda-memory", options.cuda_memory_bytes,
                 "Memory of each emulated GPU: bytes, or with a unit; 0: half of the machine's")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  app.add_option("--cuda-launch-delay", options.cuda_launch_delay_us,
                 "Microseconds that an emulated GPU waits before each kernel, for measurements")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--bind", options.bind_address,
                 "Address to listen on. Anything but loopback lets ANYONE who reaches it run ops")
      ->check(CLI::ValidIPV4)
      ->capture_default_str();
  app.add_option("--port", options.port, "TCP port; 0: a free one, printed")->capture_default_str();
  app.add_option("--io", options.io,
                 "What carries a session's traffic. auto: io_uring where the machine allows it")
      ->check(CLI::IsMember({"auto", "io_uring", "epoll"}))
      ->capture_default_str();
  app.add_option("--max-sessions", options.sessions_max, "Sessions at once; more are refused")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--log-level", options.log_level, "What goes to stderr")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  app.add_flag("--exit-with-parent", options.exit_with_parent,
               "End when the process that started this one ends");
  app.add_flag(
      "--exit-with-stdin", options.exit_with_stdin,
      "End when standard input does; for one started over ssh, whose input the channel is");
  try {
    app.parse(argc, argv);
    const size_t dot = capability.find('.');
    options.cuda_capability =
        static_cast<uint32_t>(std::atoi(capability.substr(0, dot).c_str()) * 10 +
                              std::atoi(capability.c_str() + dot + 1));
    parsed.run = true;
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error);
  }
  return parsed;
}

}  // namespace rgpu::server
