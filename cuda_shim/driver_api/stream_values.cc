// The driver API: values written to memory in the order of a stream. Waiting for one is not
// offered: CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS is 0.

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

template <typename Value>
CUresult write_value(CUstream handle, CUdeviceptr address, Value value, unsigned flags) {
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* stream = nullptr;
  RGPU_TRY(find_stream(handle, stream));
  if (address % sizeof value != 0 || flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER ||
      !calling.client->is_device_address(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Bytes of pageable memory are taken before the call returns.
  const Side from{false, reinterpret_cast<uint64_t>(&value), sizeof value, sizeof value};
  const Side to{true, address, sizeof value, sizeof value};
  return copy(*calling.client, *stream, to, from, {sizeof value, 1, 1}, false);
}

}  // namespace

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) noexcept {
  return write_value(stream, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) noexcept {
  return write_value(stream, address, value, flags);
}
