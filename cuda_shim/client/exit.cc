// The end of the process: the session is closed, and RGPU_STATS is answered. Also the figures that
// tests and tools ask for.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cuda_shim/client/api_calls.h"
#include "cuda_shim/client/client.h"
#include "cuda_shim/client/streams.h"

namespace rgpu::cuda {
namespace {

void print_statistics(Client& client) {
  const SessionStats stats = client.session().stats();
  std::vector<ApiCall> calls = api_calls();
  std::sort(calls.begin(), calls.end(),
            [](const ApiCall& a, const ApiCall& b) { return a.count > b.count; });
  std::fprintf(stderr, "rgpu: %-44s %10s %10s %8s %12s %12s\n", "function", "calls", "deferred",
               "waits", "bytes out", "bytes in");
  for (const ApiCall& call : calls) {
    std::fprintf(stderr, "rgpu: %-44s %10llu %10llu %8llu %12llu %12llu\n", call.name,
                 static_cast<unsigned long long>(call.count),
                 static_cast<unsigned long long>(call.count - std::min(call.count, call.waits)),
                 static_cast<unsigned long long>(call.waits),
                 static_cast<unsigned long long>(call.bytes_out),
                 static_cast<unsigned long long>(call.bytes_in));
  }
  const uint64_t background = background_waits();
  std::fprintf(stderr,
               "rgpu: %llu records in %llu frames, %llu waits, %llu stalls of a full ring, "
               "%llu bytes out, %llu in\n",
               static_cast<unsigned long long>(stats.records),
               static_cast<unsigned long long>(stats.frames),
               static_cast<unsigned long long>(stats.waits - stats.stalls - background),
               static_cast<unsigned long long>(stats.stalls),
               static_cast<unsigned long long>(stats.bytes_out),
               static_cast<unsigned long long>(stats.bytes_in));
}

// After the destructors of the program, whose last calls are still answered.
__attribute__((destructor(101))) void end_session() {
  Client* const client = connected_client();
  if (client == nullptr) return;
  const char* const wanted = std::getenv("RGPU_STATS");
  client->close();
  if (wanted != nullptr && *wanted != '\0' && *wanted != '0') print_statistics(*client);
}

}  // namespace
}  // namespace rgpu::cuda

extern "C" {

struct RgpuCudaStats {
  uint64_t waits;   // Of calls of the program's, for an answer; without the handshake's and exit's.
  uint64_t stalls;  // Of calls of the program's, for room in a ring.
  uint64_t records;
  uint64_t frames;
  uint64_t bytes_out;
  uint64_t bytes_in;
};

__attribute__((visibility("default"))) void rgpu_cuda_stats(RgpuCudaStats* stats) noexcept {
  *stats = {};
  rgpu::cuda::Client* const client = rgpu::cuda::connected_client();
  if (client == nullptr) return;
  const rgpu::SessionStats now = client->session().stats();
  *stats = {now.waits - now.stalls - rgpu::cuda::background_waits(),
            now.stalls,
            now.records,
            now.frames,
            now.bytes_out,
            now.bytes_in};
}
}
