// Options of rgpu-opserver, as the command line gives them.
#pragma once

#include <cstdint>
#include <string>

namespace rgpu::server {

struct Options {
  std::string device = "auto";      // "auto", "cuda", "cpu"
  uint32_t devices = 1;             // Logical devices; only with the CPU.
  uint64_t memory_limit_bytes = 0;  // Of each session on each device; 0: none.
  std::string graph_cache;          // A folder; "none": no cache.
  uint64_t graph_cache_size_bytes = uint64_t{2} << 30;
  std::string compiler;       // A Python; "": graphs are interpreted.
  uint32_t threads = 0;       // ATen's threads per session, or of an emulated GPU; 0: one per core.
  std::string cuda = "auto";  // What runs CUDA programs: "driver", "emulated", "null", "none"
  uint32_t cuda_capability = 89;      // Of an emulated GPU; 89 is 8.9.
  uint32_t cuda_devices = 1;          // Emulated GPUs.
  uint64_t cuda_memory_bytes = 0;     // Of each; 0: half of the machine's, over all of them.
  uint32_t cuda_launch_delay_us = 0;  // Before each kernel of an emulated GPU.
  std::string bind_address = "127.0.0.1";
  uint16_t port = 9720;     // 0: the system picks one.
  std::string io = "auto";  // "auto", "io_uring", "epoll"
  uint32_t sessions_max = 64;
  std::string log_level = "info";
  bool exit_with_parent = false;
  bool exit_with_stdin = false;
};

// Where graphs are kept if nobody says where: in the user's cache folder; "none" without one.
[[nodiscard]] std::string default_graph_cache();

struct ParsedOptions {
  bool run = false;  // Otherwise the process ends with `exit_status`; all was said.
  int exit_status = 0;
  Options options;
};
[[nodiscard]] ParsedOptions parse_options(int argc, const char* const* argv);

}  // namespace rgpu::server
