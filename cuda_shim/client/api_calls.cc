#include "cuda_shim/client/api_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cuda_shim/client/errors.h"

namespace rgpu::cuda {
namespace {

struct ApiName {
  const char* library;
  const char* name;
  uint64_t not_supported;
};

constexpr uint64_t kTextResult = ~uint64_t{0};  // The function returns a text.

constexpr ApiName kNames[] = {
#define RGPU_API(library, name, result) {library, name, result},
#include "cuda_shim/generated/api_names.inc"
#undef RGPU_API
};
constexpr uint32_t kSlots = sizeof(kNames) / sizeof(kNames[0]);

}  // namespace
}  // namespace rgpu::cuda

extern "C" {
__attribute__((visibility("default"))) uint64_t rgpu_api_calls[rgpu::cuda::kSlots] = {};
__attribute__((visibility("default"),
               tls_model("initial-exec"))) thread_local uint32_t rgpu_current_slot =
    rgpu::cuda::kSlots;
}

namespace rgpu::cuda {
namespace {

std::atomic<bool> g_named[kSlots] = {};

struct Cost {
  std::atomic<uint64_t> waits{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> bytes_in{0};
};
Cost g_costs[kSlots + 1];  // The last one: of threads that never called.

uint64_t count_of(uint32_t slot) noexcept {
  return std::atomic_ref<uint64_t>(rgpu_api_calls[slot]).load(std::memory_order_relaxed);
}

// RGPU_CUDA_CALL_LOG=path: the names called, a line each, appended in one write so that
// processes that end together do not mix their lines.
__attribute__((destructor)) void write_call_log() {
  const char* path = std::getenv("RGPU_CUDA_CALL_LOG");
  if (path == nullptr || *path == '\0') return;
  std::string lines;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (count_of(slot) != 0) lines.append(kNames[slot].name).append("\n");
  }
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, lines.data(), lines.size());
  close(file);
}

}  // namespace

std::vector<ApiCall> api_calls() {
  std::vector<ApiCall> calls;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (const uint64_t count = count_of(slot); count != 0) {
      const Cost& cost = g_costs[slot];
      calls.push_back({kNames[slot].library, kNames[slot].name, count, cost.waits, cost.bytes_out,
                       cost.bytes_in});
    }
  }
  return calls;
}

void note_wait() noexcept {
  g_costs[rgpu_current_slot].waits.fetch_add(1, std::memory_order_relaxed);
}

void note_bytes_out(uint64_t size_bytes) noexcept {
  g_costs[rgpu_current_slot].bytes_out.fetch_add(size_bytes, std::memory_order_relaxed);
}

void note_bytes_in(uint64_t size_bytes) noexcept {
  g_costs[rgpu_current_slot].bytes_in.fetch_add(size_bytes, std::memory_order_relaxed);
}

}  // namespace rgpu::cuda

extern "C" __attribute__((visibility("default"))) uint64_t
rgpu_not_supported(uint32_t slot) noexcept {
  using rgpu::cuda::kNames;
  const auto& entry = kNames[slot];
  if (!rgpu::cuda::g_named[slot].exchange(true, std::memory_order_relaxed)) {
    std::fprintf(stderr, "rgpu: %s (%s) is not supported\n", entry.name, entry.library);
  }
  static constexpr char kText[] = "not supported by rgpu";
  if (entry.not_supported == rgpu::cuda::kTextResult) return reinterpret_cast<uintptr_t>(kText);
  // As every error of the runtime's, it is the thread's last one.
  if (std::string_view(entry.library) == "libcudart" &&
      entry.not_supported == static_cast<uint64_t>(cudaErrorNotSupported)) {
    (void)rgpu::cuda::latch(cudaErrorNotSupported);
  }
  return entry.not_supported;
}
