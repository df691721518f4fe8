// ApiCalls: which exported CUDA functions this process has called, and how often.
//
// The public libraries' trampolines count before they jump here; a call from one of our own
// functions to another is not counted.
//
// Threading: any thread, at any time; counts are relaxed.
// Lifetime:  static storage; names are string literals.
// Errors:    none. At exit a log that cannot be written is dropped.
#pragma once

#include <cstdint>
#include <vector>

namespace rgpu::cuda {

struct ApiCall {
  const char* library;  // "libcuda", "libcudart", …
  const char* name;
  uint64_t count;
  uint64_t waits;  // For an answer, during these calls.
  uint64_t bytes_out;
  uint64_t bytes_in;
};

// The functions called so far, in slot order.
[[nodiscard]] std::vector<ApiCall> api_calls();
// What the calling thread's present call, or its last one, costs.
void note_wait() noexcept;
void note_bytes_out(uint64_t size_bytes) noexcept;
void note_bytes_in(uint64_t size_bytes) noexcept;

}  // namespace rgpu::cuda

extern "C" {
// One count a slot, in the order of generated/api_names.inc.
extern uint64_t rgpu_api_calls[];
// The slot of the calling thread's last call. The trampolines write it.
extern thread_local uint32_t rgpu_current_slot __attribute__((tls_model("initial-exec")));
// Where a trampoline ends that has nothing to jump to: names the function on stderr, once, and
// returns its library's code for "not supported".
uint64_t rgpu_not_supported(uint32_t slot) noexcept;
}
