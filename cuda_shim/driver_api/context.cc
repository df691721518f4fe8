// The driver API: contexts, limits, cache configuration.

#include "cuda_shim/client/context.h"

#include <algorithm>

#include "cuda_shim/client/context_events.h"
#include "cuda_shim/client/device_reset.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

// What a limit is when nobody set it.
size_t default_limit(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      return 1024;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return size_t{1} << 20;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return size_t{8} << 20;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return 2;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      return 2048;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return 64;
    default:
      return 0;
  }
}

// The context that a handle names, or the current one for none.
CUresult find_context(CUcontext handle, Context*& context) {
  if (!initialised() || connected_client() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  context = handle == nullptr ? current() : contexts().find(handle);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxCreate_v4(CUcontext* handle, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice ordinal) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(ordinal, device));
  if (handle == nullptr || !are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (parameters != nullptr &&
      (parameters->numExecAffinityParams != 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Context* const context = contexts().create();
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  bind(*context, *device, ordinal);
  context->flags = flags;
  context->active = true;
  push(context);
  *handle = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext* handle, CUexecAffinityParam* affinities, int count,
                        unsigned int flags, CUdevice device) noexcept {
  CUctxCreateParams parameters{affinities, count, nullptr};
  return cuCtxCreate_v4(handle, &parameters, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext* handle, unsigned int flags, CUdevice device) noexcept {
  return cuCtxCreate_v4(handle, nullptr, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) noexcept {
  Context* context = nullptr;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  RGPU_TRY(find_context(handle, context));
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (current() == context) (void)pop();
  destroy_streams_of(*context);
  if (Client* const client = connected_client()) free_memory_of(*client, *context);
  contexts().destroy(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) noexcept {
  Context* context = nullptr;
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  RGPU_TRY(find_context(handle, context));
  push(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  (void)pop();
  if (handle != nullptr) *handle = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  Context* context = nullptr;
  if (handle != nullptr) RGPU_TRY(find_context(handle, context));
  set_current(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) noexcept {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *handle = handle_of(current());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* ordinal) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (ordinal == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ordinal = context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* ordinal, CUcontext handle) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(handle, context));
  if (ordinal == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ordinal = context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(handle, context));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext handle) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(handle, context));
  return synchronize_device(*context->device);
}

CUresult cuCtxSynchronize() noexcept { return cuCtxSynchronize_v2(nullptr); }

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(handle, context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE &&
      context->device->attribute(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE) == 0) {
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
  if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
    return limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
  {
    const std::lock_guard lock(context->mutex);
    std::erase_if(context->limits,
                  [&](const auto& set) { return set.first == static_cast<int>(limit); });
    context->limits.emplace_back(static_cast<int>(limit), value);
  }
  return connected_client()->append(
      context->legacy.number, Call::kSetLimit,
      rgpu::wire::cuda::SetLimit{value, context->device->number, static_cast<int32_t>(limit)});
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
    return limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
  const std::lock_guard lock(context->mutex);
  const auto set =
      std::find_if(context->limits.begin(), context->limits.end(),
                   [&](const auto& entry) { return entry.first == static_cast<int>(limit); });
  *value = set != context->limits.end() ? set->second : default_limit(limit);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  *config = context->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(context->mutex);
  context->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  return config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  const bool supported =
      context->device->attribute(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED) != 0;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = supported ? -5 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() noexcept {
  Context* context = nullptr;
  return find_context(nullptr, context);
}

// ---- Events of a whole context: its streams are its device's ------------------------------------

namespace {

template <typename Act>
CUresult on_event(CUcontext handle, CUevent event_handle, Act act) {
  Context* context = nullptr;
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  RGPU_TRY(find_context(handle, context));
  Event* const event = events().find(event_handle);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : act(*context, *event);
}

}  // namespace

CUresult cuCtxRecordEvent(CUcontext handle, CUevent event) noexcept {
  return on_event(handle, event, record_event_of_all);
}

CUresult cuCtxWaitEvent(CUcontext handle, CUevent event) noexcept {
  return on_event(handle, event, wait_event_of_all);
}

// ---- Counting uses ------------------------------------------------------------------------------

CUresult cuCtxAttach(CUcontext* handle, unsigned int flags) noexcept {
  Context* context = nullptr;
  RGPU_TRY(find_context(nullptr, context));
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->attached.fetch_add(1);
  *handle = handle_of(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) noexcept {
  Context* context = nullptr;
  if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  RGPU_TRY(find_context(handle, context));
  if (context != current()) return CUDA_ERROR_INVALID_CONTEXT;
  const bool is_last = context->attached.fetch_sub(1) == 1;
  return is_last && !context->primary ? cuCtxDestroy_v2(handle) : CUDA_SUCCESS;
}
