// Errors: CUresult and cudaError_t, a thread's last error, and names and texts.
//
// Threading: any thread; the last error is each thread's own.
#pragma once

#include "cuda_shim/generated/cuda_api.h"

// Returns what is not success from the function that it stands in, as either API's type.
#define RGPU_TRY(expression)                                                         \
  do {                                                                               \
    if (const auto code_ = (expression); static_cast<int>(code_) != 0) return code_; \
  } while (false)

namespace rgpu::cuda {

[[nodiscard]] cudaError_t to_runtime(CUresult code) noexcept;
[[nodiscard]] CUresult to_driver(cudaError_t code) noexcept;
// Remembers what is not cudaSuccess as the thread's last error, and returns it.
cudaError_t latch(cudaError_t code) noexcept;
inline cudaError_t latch(CUresult code) noexcept { return latch(to_runtime(code)); }
// The last error; `clear`: and forgets it. What spoiled the session stays.
[[nodiscard]] cudaError_t last_error(bool clear) noexcept;

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};
// nullptr: no such error.
[[nodiscard]] const ErrorText* driver_error(int code) noexcept;
[[nodiscard]] const ErrorText* runtime_error(int code) noexcept;

}  // namespace rgpu::cuda
