#include "cuda_shim/client/context.h"

#include <bit>
#include <utility>

#include "wire/stream.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kContextsMax = 1u << 16;

struct ThreadState {
  std::vector<Context*> stack;
  int chosen_device = 0;
  std::vector<std::pair<Context*, Stream*>> default_streams;  // This thread's, by context.
};
thread_local ThreadState thread_state;

std::atomic<bool> is_initialised{false};
std::atomic<uint64_t> context_ids{1};
std::mutex primaries_mutex;
std::vector<Context*> primaries;  // By ordinal.

}  // namespace

HandleTable<Context>& contexts() {
  static auto* const table = new HandleTable<Context>(kContextsMax);
  return *table;
}

bool initialised() noexcept { return is_initialised.load(std::memory_order_acquire); }

CUresult initialise() noexcept {
  Client* made = nullptr;
  if (const CUresult code = client(made); code != CUDA_SUCCESS) return code;
  if (made->devices().empty()) return CUDA_ERROR_NO_DEVICE;
  is_initialised.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult find_device(int ordinal, Device*& device) noexcept {
  Client* const client = connected_client();
  if (client == nullptr || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= client->devices().size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  device = client->devices()[static_cast<size_t>(ordinal)].get();
  return CUDA_SUCCESS;
}

int device_count() noexcept {
  Client* const client = connected_client();
  return client == nullptr ? 0 : static_cast<int>(client->devices().size());
}

void bind(Context& context, Device& device, int ordinal) {
  context.device = &device;
  context.ordinal = ordinal;
  context.id = context_ids.fetch_add(1);
  context.legacy.context = &context;
  context.legacy.device = &device;
  context.legacy.number = wire::stream_of(device.number, 0);
  context.legacy.id = 1;
}

Context& primary_context(int ordinal) {
  const std::lock_guard lock(primaries_mutex);
  const auto at = static_cast<size_t>(ordinal);
  if (primaries.size() <= at) primaries.resize(at + 1, nullptr);
  if (primaries[at] == nullptr) {
    Context* const context = contexts().create();
    bind(*context, *connected_client()->devices()[at], ordinal);
    context->primary = true;
    primaries[at] = context;
  }
  return *primaries[at];
}

CUresult enter(Calling& calling) noexcept {
  calling.client = connected_client();
  if (calling.client == nullptr || !initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  calling.context = current();
  if (calling.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  calling.device = calling.context->device;
  return calling.client->sticky();
}

cudaError_t ensure_context() noexcept {
  if (!thread_state.stack.empty()) [[likely]] {
    Client* const client = connected_client();
    if (client == nullptr) return cudaErrorInitializationError;
    return static_cast<cudaError_t>(client->sticky());
  }
  if (const CUresult code = initialise(); code != CUDA_SUCCESS) {
    return static_cast<cudaError_t>(code);
  }
  if (thread_state.chosen_device >= device_count()) return cudaErrorInvalidDevice;
  Context& primary = primary_context(thread_state.chosen_device);
  primary.active = true;
  thread_state.stack.push_back(&primary);
  return static_cast<cudaError_t>(connected_client()->sticky());
}

cudaError_t enter_runtime(Calling& calling) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return code;
  calling.client = connected_client();
  calling.context = thread_state.stack.back();
  calling.device = calling.context->device;
  return cudaSuccess;
}

bool are_context_flags(unsigned flags) noexcept {
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
         std::popcount(flags & CU_CTX_SCHED_MASK) <= 1;
}

Context* current() noexcept {
  return thread_state.stack.empty() ? nullptr : thread_state.stack.back();
}

void push(Context* context) { thread_state.stack.push_back(context); }

Context* pop() noexcept {
  if (thread_state.stack.empty()) return nullptr;
  Context* const top = thread_state.stack.back();
  thread_state.stack.pop_back();
  return top;
}

void set_current(Context* context) {
  if (context == nullptr) {
    (void)pop();
  } else if (thread_state.stack.empty()) {
    push(context);
  } else {
    thread_state.stack.back() = context;
  }
}

int chosen_device() noexcept {
  return thread_state.stack.empty() ? thread_state.chosen_device
                                    : thread_state.stack.back()->ordinal;
}

void choose_device(int ordinal) noexcept { thread_state.chosen_device = ordinal; }

void forget_default_streams(Context& context) {
  std::erase_if(thread_state.default_streams,
                [&](const auto& entry) { return entry.first == &context; });
}

CUresult per_thread_stream(Context& context, Stream*& stream) {
  for (const auto& [of, its] : thread_state.default_streams) {
    if (of != &context) continue;
    stream = its;
    if (streams().find(its) != nullptr) return CUDA_SUCCESS;
    forget_default_streams(context);  // Another thread has reset the device.
    break;
  }
  if (const CUresult code = create_stream(context, CU_STREAM_DEFAULT, 0, stream);
      code != CUDA_SUCCESS) {
    return code;
  }
  thread_state.default_streams.emplace_back(&context, stream);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
