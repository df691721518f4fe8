// The end of the process: the session is closed, and RGPU_STATS and RGPU_CUDA_STATS_FILE are
// answered. Also the figures that tests and tools ask for.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cuda_shim/client/api_calls.h"
#include "cuda_shim/client/client.h"
#include "cuda_shim/client/streams.h"

namespace rgpu::cuda {
namespace {

struct Statistics {
  explicit Statistics(Client& client)
      : session(client.session().stats()),
        waits(session.waits - session.stalls - background_waits()),
        calls(api_calls()) {
    std::sort(calls.begin(), calls.end(),
              [](const ApiCall& a, const ApiCall& b) { return a.count > b.count; });
  }
  const SessionStats session;
  const uint64_t waits;  // Of the program's calls, for an answer.
  std::vector<ApiCall> calls;
};

unsigned long long deferred(const ApiCall& call) {
  return call.count - std::min(call.count, call.waits);
}

void print(const Statistics& statistics) {
  std::fprintf(stderr, "rgpu: %-44s %10s %10s %8s %12s %12s\n", "function", "calls", "deferred",
               "waits", "bytes out", "bytes in");
  for (const ApiCall& call : statistics.calls) {
    std::fprintf(stderr, "rgpu: %-44s %10llu %10llu %8llu %12llu %12llu\n", call.name,
                 static_cast<unsigned long long>(call.count), deferred(call),
                 static_cast<unsigned long long>(call.waits),
                 static_cast<unsigned long long>(call.bytes_out),
                 static_cast<unsigned long long>(call.bytes_in));
  }
  const SessionStats& session = statistics.session;
  std::fprintf(stderr,
               "rgpu: %llu records in %llu frames, %llu waits, %llu stalls of a full ring, "
               "%llu bytes out, %llu in\n",
               static_cast<unsigned long long>(session.records),
               static_cast<unsigned long long>(session.frames),
               static_cast<unsigned long long>(statistics.waits),
               static_cast<unsigned long long>(session.stalls),
               static_cast<unsigned long long>(session.bytes_out),
               static_cast<unsigned long long>(session.bytes_in));
}

std::string to_json(const Statistics& statistics) {
  std::string text = "{";
  const auto add = [&text](const char* name, uint64_t value, const char* end) {
    text.append("\"").append(name).append("\": ").append(std::to_string(value)).append(end);
  };
  const SessionStats& session = statistics.session;
  add("waits", statistics.waits, ", ");
  add("stalls", session.stalls, ", ");
  add("records", session.records, ", ");
  add("frames", session.frames, ", ");
  add("bytes_out", session.bytes_out, ", ");
  add("bytes_in", session.bytes_in, ",\n \"functions\": [");
  const char* before = "\n  {";
  for (const ApiCall& call : statistics.calls) {  // Their names need no escapes.
    text.append(before).append("\"name\": \"").append(call.name).append("\", \"library\": \"");
    text.append(call.library).append("\", ");
    add("calls", call.count, ", ");
    add("deferred", deferred(call), ", ");
    add("waits", call.waits, ", ");
    add("bytes_out", call.bytes_out, ", ");
    add("bytes_in", call.bytes_in, "}");
    before = ",\n  {";
  }
  return text.append("]}\n");
}

void write_to(const char* path, const std::string& text) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!written) say(std::string(path) + " cannot be written: " + std::strerror(errno));
  if (file >= 0) close(file);
}

// The variable's value; nullptr: it is not set, or empty.
const char* environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// After the destructors of the program, whose last calls are still answered.
__attribute__((destructor(101))) void end_session() {
  Client* const client = connected_client();
  if (client == nullptr) return;
  const char* const printed = environment("RGPU_STATS");
  const char* const path = environment("RGPU_CUDA_STATS_FILE");
  client->close();
  if (printed != nullptr && *printed != '0') print(Statistics(*client));
  if (path != nullptr) write_to(path, to_json(Statistics(*client)));
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
