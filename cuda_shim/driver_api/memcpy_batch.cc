// The driver API: several boxes copied by one call.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUresult read_side(const Client& client, const CUmemcpy3DOperand& operand, const CUextent3D& extent,
                   Side& side) {
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER || operand.op.ptr.ptr == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // 0 stands for the extent's own.
  const uint64_t row = operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : extent.width;
  const uint64_t rows =
      operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : extent.height;
  if (row < extent.width || rows < extent.height) return CUDA_ERROR_INVALID_VALUE;
  side = side_of(client, operand.op.ptr.ptr);
  side.row_pitch_bytes = row;
  return __builtin_mul_overflow(row, rows, &side.slice_pitch_bytes) ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                                 unsigned long long flags, CUstream handle) noexcept {
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(handle, stream));
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // All are looked at before one is made.
  std::vector<std::pair<Side, Side>> sides(count);
  for (size_t i = 0; i < count; ++i) {
    const CUextent3D& extent = operations[i].extent;
    RGPU_TRY(read_side(*calling.client, operations[i].dst, extent, sides[i].first));
    RGPU_TRY(read_side(*calling.client, operations[i].src, extent, sides[i].second));
  }
  for (size_t i = 0; i < count; ++i) {
    const CUextent3D& extent = operations[i].extent;
    RGPU_TRY(copy(*calling.client, *stream, sides[i].first, sides[i].second,
                  {extent.width, extent.height, extent.depth}, false));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                              unsigned long long flags, CUstream stream) noexcept {
  if (failed != nullptr) *failed = SIZE_MAX;
  return cuMemcpy3DBatchAsync_v2(count, operations, flags, stream);
}
