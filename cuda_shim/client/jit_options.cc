#include "cuda_shim/client/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace rgpu::cuda {

void JitOptions::write(Log& log, std::string_view text) noexcept {
  size_t size_bytes = 0;
  if (log.buffer != nullptr && log.size_bytes != 0) {
    size_bytes = std::min(text.size(), log.size_bytes - 1);
    std::memcpy(log.buffer, text.data(), size_bytes);
    log.buffer[size_bytes] = '\0';
  }
  if (log.size_option != nullptr) *log.size_option = reinterpret_cast<void*>(size_bytes);
}

CUresult JitOptions::read(unsigned count, const CUjit_option* options, void** values) {
  if (count > CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;  // Each once.
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto take_size = [](Log& log, void*& value) {
    // The size is a 32-bit number in the place of a pointer.
    log.size_bytes = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value));
    log.size_option = &value;
  };
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        errors_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        infos_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        take_size(errors_, values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        take_size(infos_, values[i]);
        break;
      default:
        if (options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  write(errors_, "");
  write(infos_, "");
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
