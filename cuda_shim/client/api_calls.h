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
};

// The functions called so far, in slot order.
[[nodiscard]] std::vector<ApiCall> api_calls();

}  // namespace rgpu::cuda

extern "C" {
// One count a slot, in the order of generated/api_names.inc.
extern uint64_t rgpu_api_calls[];
// Where a trampoline ends that has nothing to jump to: names the function on stderr, once, and
// returns its library's code for "not supported".
uint64_t rgpu_not_supported(uint32_t slot) noexcept;
}
