// The driver API: the profiler's switches. There is none on this side; programs go on.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

CUresult cuProfilerStart() noexcept {
  Calling calling;
  return enter(calling);
}

CUresult cuProfilerStop() noexcept {
  Calling calling;
  return enter(calling);
}
