// Context: what CUDA's contexts are here: a device, and a thread's stack of those that are current.
//
// Threading: contexts are shared by threads; a stack is each thread's own.
// Errors:    CUresult.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "cuda_shim/client/client.h"
#include "cuda_shim/client/handle_table.h"
#include "cuda_shim/client/streams.h"

namespace rgpu::cuda {

struct Context {
  Device* device = nullptr;
  int ordinal = 0;  // The device's, as the program counts.
  bool primary = false;
  unsigned flags = 0;
  uint64_t id = 0;
  std::atomic<int> retained{0};  // Of a primary one.
  std::atomic<int> attached{1};  // Of another: cuCtxDetach() destroys it at 0.
  std::atomic<bool> active{false};
  // The wire's number of what every stream made from now on waits for; 0: nothing.
  std::atomic<uint64_t> awaited_event{0};
  Stream legacy;     // The device's legacy default stream, as this context has it.
  std::mutex mutex;  // Guards what follows.
  std::vector<std::pair<int, size_t>> limits;  // By CUlimit; those that were set.
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::vector<uint64_t> peers;  // Ids of contexts whose memory it may reach.
};

[[nodiscard]] HandleTable<Context>& contexts();
// Whether cuInit() succeeded.
[[nodiscard]] bool initialised() noexcept;
[[nodiscard]] CUresult initialise() noexcept;  // cuInit.

// A visible device; CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_INITIALIZED.
[[nodiscard]] CUresult find_device(int ordinal, Device*& device) noexcept;
[[nodiscard]] Context& primary_context(int ordinal);  // Of a visible device.
[[nodiscard]] int device_count() noexcept;            // 0 before initialise().

// What a call is to know: checked once at its front.
struct Calling {
  Client* client = nullptr;
  Context* context = nullptr;
  Device* device = nullptr;
};
// For driver functions: CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_CONTEXT, or what spoiled the
// session.
[[nodiscard]] CUresult enter(Calling& calling) noexcept;
// For runtime functions: initialises, and makes the primary context of the thread's device current
// where none is.
[[nodiscard]] cudaError_t ensure_context() noexcept;
[[nodiscard]] cudaError_t enter_runtime(Calling& calling) noexcept;

// Bits of CUctx_flags, of which one at most says how to wait.
[[nodiscard]] bool are_context_flags(unsigned flags) noexcept;

// The thread's stack. current() is nullptr when it is empty.
[[nodiscard]] Context* current() noexcept;
void push(Context* context);
[[nodiscard]] Context* pop() noexcept;
void set_current(Context* context);  // nullptr: pops.
// The device that cudaSetDevice chose for this thread.
[[nodiscard]] int chosen_device() noexcept;
void choose_device(int ordinal) noexcept;
// The calling thread's per-thread default stream in its current context.
[[nodiscard]] CUresult per_thread_stream(Context& context, Stream*& stream);
// This thread's of that context is gone.
void forget_default_streams(Context& context);
// Makes a context of the device's that is not its primary one.
void bind(Context& context, Device& device, int ordinal);

}  // namespace rgpu::cuda
