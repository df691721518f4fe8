// Per-thread default streams: what the generated _ptsz and _ptds functions share.
//
// Threading: any thread; everything here is the calling thread's own.
// Errors:    the API's codes, unchanged.
#pragma once

#include <type_traits>

#include "cuda_shim/generated/cuda_api.h"

namespace rgpu::cuda {

// The null stream as a per-thread program means it; others as they are.
[[nodiscard]] inline CUstream per_thread(CUstream stream) noexcept {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

// Flags of an address query: per-thread functions unless the program asked for the legacy ones.
template <typename Flags>
[[nodiscard]] Flags per_thread_flags(Flags flags) noexcept {
  static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM == 2 &&
                cudaEnablePerThreadDefaultStream == 2);
  return flags == 0 ? Flags{2} : flags;
}

// A program's record with the stream replaced, for one call; null stays null.
template <typename Record>
class PerThreadConfig {
 public:
  PerThreadConfig(Record* config, CUstream std::remove_const_t<Record>::* stream) noexcept
      : config_(config), stream_(stream) {
    if (config_ == nullptr) return;
    copy_ = *config_;
    copy_.*stream_ = per_thread(copy_.*stream_);
  }
  PerThreadConfig(const PerThreadConfig&) = delete;
  PerThreadConfig& operator=(const PerThreadConfig&) = delete;
  ~PerThreadConfig() {
    // What the callee wrote is the program's; the stream stays as the program had it.
    if constexpr (!std::is_const_v<Record>) {
      if (config_ == nullptr) return;
      copy_.*stream_ = config_->*stream_;
      *config_ = copy_;
    }
  }
  [[nodiscard]] Record* get() noexcept { return config_ == nullptr ? nullptr : &copy_; }

 private:
  Record* config_;
  CUstream std::remove_const_t<Record>::* stream_;
  std::remove_const_t<Record> copy_{};
};

// What a synchronous copy has left to wait for once its asynchronous form has returned.
enum class Settle {
  kNothing,   // It touches device memory only.
  kHostRead,  // Its bytes were staged, unless a host function must run first.
  kAll,
};
[[nodiscard]] Settle settle_of(cudaMemcpyKind kind) noexcept;
[[nodiscard]] CUresult finish(CUresult code, Settle settle) noexcept;
[[nodiscard]] cudaError_t finish_runtime(cudaError_t code, Settle settle) noexcept;

}  // namespace rgpu::cuda
