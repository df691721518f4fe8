// The driver API: streams, events, host functions.

#include <memory>
#include <utility>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/streams.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUstream handle_of(Stream* stream) { return reinterpret_cast<CUstream>(stream); }

// The front of every function of a stream's.
CUresult enter(CUstream handle, Stream*& stream) {
  Calling calling;
  RGPU_TRY(rgpu::cuda::enter(calling));
  return find_stream(handle, stream);
}

CUresult enter(CUevent handle, Event*& event) {
  Calling calling;
  RGPU_TRY(rgpu::cuda::enter(calling));
  event = events().find(handle);
  return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

constexpr int kPriorityGreatest = -5;

}  // namespace

// ---- Streams ------------------------------------------------------------------------------------

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned int flags, int priority) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream = nullptr;
  // Out of range is brought into it, as CUDA does.
  const int within = priority > 0 ? 0 : priority < kPriorityGreatest ? kPriorityGreatest : priority;
  RGPU_TRY(create_stream(*calling.context, flags, within, stream));
  *handle = handle_of(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* handle, unsigned int flags) noexcept {
  return cuStreamCreateWithPriority(handle, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream handle) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (streams().find(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // A default stream.
  return destroy_stream(*stream);
}

CUresult cuStreamSynchronize(CUstream handle) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  return synchronize(*stream);
}

CUresult cuStreamQuery(CUstream handle) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  return query(*stream);
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) noexcept {
  if (green != nullptr) *green = nullptr;
  return cuStreamGetCtx(handle, context);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) noexcept {
  Stream* stream = nullptr;
  Event* event = nullptr;
  RGPU_TRY(enter(handle, stream));
  RGPU_TRY(enter(event_handle, event));
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return wait_event(*stream, *event);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status,
                                cuuint64_t* id) noexcept {
  if (id != nullptr) *id = 0;
  return cuStreamIsCapturing(handle, status);
}

// ---- Attributes ---------------------------------------------------------------------------------

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute,
                              CUstreamAttrValue* value) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(stream->mutex);
  *value = {};
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      value->syncPolicy = static_cast<CUsynchronizationPolicy>(stream->sync_policy);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = stream->priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute,
                              const CUstreamAttrValue* value) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(stream->mutex);
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
          value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      stream->sync_policy = value->syncPolicy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      if (value->priority > 0 || value->priority < kPriorityGreatest) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      stream->priority = value->priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return CUDA_SUCCESS;  // Hints.
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuStreamCopyAttributes(CUstream target_handle, CUstream source_handle) noexcept {
  Stream* target = nullptr;
  Stream* source = nullptr;
  RGPU_TRY(enter(target_handle, target));
  RGPU_TRY(enter(source_handle, source));
  if (target == source) return CUDA_SUCCESS;
  const std::scoped_lock lock(target->mutex, source->mutex);
  target->sync_policy = source->sync_policy;
  target->priority = source->priority;
  return CUDA_SUCCESS;
}

// ---- Host functions -----------------------------------------------------------------------------

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) noexcept {
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch_host_function(*stream, function, data);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                             unsigned int flags) noexcept {
  struct Call {
    CUstream stream;
    CUstreamCallback callback;
    void* data;
  };
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto call = std::make_unique<Call>(Call{handle, callback, data});
  RGPU_TRY(launch_host_function(
      *stream,
      [](void* given) {
        const std::unique_ptr<Call> owned(static_cast<Call*>(given));
        owned->callback(owned->stream, CUDA_SUCCESS, owned->data);
      },
      call.get()));
  (void)call.release();
  return CUDA_SUCCESS;
}

// ---- Events -------------------------------------------------------------------------------------

CUresult cuEventCreate(CUevent* handle, unsigned int flags) noexcept {
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
  Calling calling;
  RGPU_TRY(enter(calling));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    return (flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                  : CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  Event* const event = events().create();
  if (event == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  event->context = calling.context;
  event->flags = flags;
  *handle = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) noexcept {
  Event* event = nullptr;
  RGPU_TRY(enter(handle, event));
  return destroy_event(*event);
}

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream_handle,
                                unsigned int flags) noexcept {
  Event* event = nullptr;
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, event));
  RGPU_TRY(enter(stream_handle, stream));
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (event->context->device != stream->device) return CUDA_ERROR_INVALID_HANDLE;
  return record_event(*event, *stream);
}

CUresult cuEventRecord(CUevent event, CUstream stream) noexcept {
  return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventSynchronize(CUevent handle) noexcept {
  Event* event = nullptr;
  RGPU_TRY(enter(handle, event));
  return synchronize(*event);
}

CUresult cuEventQuery(CUevent handle) noexcept {
  Event* event = nullptr;
  RGPU_TRY(enter(handle, event));
  return query(*event);
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle,
                               CUevent end_handle) noexcept {
  Event* start = nullptr;
  Event* end = nullptr;
  RGPU_TRY(enter(start_handle, start));
  RGPU_TRY(enter(end_handle, end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return elapsed(*start, *end, *milliseconds);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) noexcept {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
