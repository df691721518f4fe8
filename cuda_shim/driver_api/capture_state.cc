// The driver API: questions about stream capture. Nothing is captured here (yet), so every stream
// is free of it; a thread's mode is kept for those that set it and set it back.

#include <utility>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

thread_local CUstreamCaptureMode mode_of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;

}  // namespace

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, mode_of_thread);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* dependency_count) noexcept {
  RGPU_TRY(cuStreamIsCapturing(stream, status));
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges,
                                   size_t* dependency_count) noexcept {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, dependency_count);
}
