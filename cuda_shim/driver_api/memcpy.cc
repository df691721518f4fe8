// The driver API: copies and memsets.

#include <algorithm>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.
using rgpu::wire::cuda::Extent;

namespace {

CUresult enter(CUstream handle, Calling& calling, Stream*& stream) {
  RGPU_TRY(rgpu::cuda::enter(calling));
  return find_stream(handle, stream);
}

Side host_side(const void* address) { return {false, reinterpret_cast<uint64_t>(address), 0, 0}; }
Side device_side(CUdeviceptr address) { return {true, address, 0, 0}; }

// `target` and `source`: a Side, or an address that may be of either kind.
CUresult copy_bytes(CUstream handle, const Side* target, const Side* source, uint64_t size_bytes,
                    bool blocking) {
  Calling calling;
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, calling, stream));
  for (const Side* const side : {target, source}) {
    if (side->on_device && !calling.client->is_device_address(side->address)) {
      return size_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return copy(*calling.client, *stream, *target, *source, {size_bytes, 1, 1}, blocking);
}

CUresult copy_anything(CUstream handle, CUdeviceptr target, CUdeviceptr source, uint64_t size_bytes,
                       bool blocking) {
  Calling calling;
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, calling, stream));
  return copy(*calling.client, *stream, side_of(*calling.client, target),
              side_of(*calling.client, source), {size_bytes, 1, 1}, blocking);
}

CUresult set(CUstream handle, CUdeviceptr target, size_t pitch_bytes, uint32_t value, uint32_t unit,
             size_t width, size_t height) {
  Calling calling;
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, calling, stream));
  if (height > 1 && pitch_bytes < width * unit) return CUDA_ERROR_INVALID_VALUE;
  Side side = side_of(*calling.client, target);
  side.row_pitch_bytes = pitch_bytes;
  return set_memory(*calling.client, *stream, side, {width * unit, height, 1}, value, unit);
}

// One side of a CUDA_MEMCPY2D, 3D or 3D_PEER.
struct Described {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x_bytes, y, z;
  size_t pitch_bytes;
  size_t height;
};

CUresult side_of(const Client& client, const Described& described, const Extent& extent,
                 Side& side) {
  switch (described.type) {
    case CU_MEMORYTYPE_HOST:
      side = host_side(described.host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      side = device_side(described.device);
      if (!client.is_device_address(described.device)) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side = rgpu::cuda::side_of(client, described.device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  side.row_pitch_bytes =
      described.pitch_bytes != 0 ? described.pitch_bytes : described.x_bytes + extent.width_bytes;
  const size_t height = described.height != 0 ? described.height : described.y + extent.height;
  side.slice_pitch_bytes = side.row_pitch_bytes * height;
  if ((described.pitch_bytes != 0 &&
       described.pitch_bytes < described.x_bytes + extent.width_bytes) ||
      (described.height != 0 && extent.depth > 1 &&
       described.height < described.y + extent.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side.address +=
      described.z * side.slice_pitch_bytes + described.y * side.row_pitch_bytes + described.x_bytes;
  return CUDA_SUCCESS;
}

CUresult copy_described(CUstream handle, const Described& target, const Described& source,
                        const Extent& extent, bool blocking) {
  Calling calling;
  Stream* stream = nullptr;
  RGPU_TRY(enter(handle, calling, stream));
  if (extent.width_bytes == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  Side to;
  Side from;
  RGPU_TRY(side_of(*calling.client, target, extent, to));
  RGPU_TRY(side_of(*calling.client, source, extent, from));
  return copy(*calling.client, *stream, to, from, extent, blocking);
}

CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D* p, bool blocking) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_described(
      stream,
      {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes, p->dstY, 0, p->dstPitch, 0},
      {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY, 0, p->srcPitch, 0},
      {p->WidthInBytes, p->Height, 1}, blocking);
}

// Both CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER: addresses say which device they are of.
template <typename Parameters>
CUresult copy_3d(CUstream stream, const Parameters* p, bool blocking) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_described(stream,
                        {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes, p->dstY,
                         p->dstZ, p->dstPitch, p->dstHeight},
                        {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY,
                         p->srcZ, p->srcPitch, p->srcHeight},
                        {p->WidthInBytes, p->Height, p->Depth}, blocking);
}

}  // namespace

// ---- Bytes --------------------------------------------------------------------------------------

CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t size_bytes) noexcept {
  return copy_anything(nullptr, target, source, size_bytes, true);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t size_bytes,
                       CUstream stream) noexcept {
  return copy_anything(stream, target, source, size_bytes, false);
}

CUresult cuMemcpyPeer(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext,
                      size_t size_bytes) noexcept {
  return copy_anything(nullptr, target, source, size_bytes, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext,
                           size_t size_bytes, CUstream stream) noexcept {
  return copy_anything(stream, target, source, size_bytes, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t size_bytes,
                              CUstream stream) noexcept {
  const Side to = device_side(target);
  const Side from = host_side(source);
  return copy_bytes(stream, &to, &from, size_bytes, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t size_bytes) noexcept {
  const Side to = device_side(target);
  const Side from = host_side(source);
  return copy_bytes(nullptr, &to, &from, size_bytes, true);
}

CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t size_bytes) noexcept {
  const Side to = host_side(target);
  const Side from = device_side(source);
  return copy_bytes(nullptr, &to, &from, size_bytes, true);
}

CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t size_bytes,
                              CUstream stream) noexcept {
  const Side to = host_side(target);
  const Side from = device_side(source);
  return copy_bytes(stream, &to, &from, size_bytes, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size_bytes,
                              CUstream stream) noexcept {
  const Side to = device_side(target);
  const Side from = device_side(source);
  return copy_bytes(stream, &to, &from, size_bytes, false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size_bytes) noexcept {
  return cuMemcpyDtoDAsync_v2(target, source, size_bytes, nullptr);
}

// ---- Boxes --------------------------------------------------------------------------------------

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* p) noexcept { return copy_2d(nullptr, p, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p) noexcept {
  return copy_2d(nullptr, p, true);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p, CUstream stream) noexcept {
  return copy_2d(stream, p, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* p) noexcept { return copy_3d(nullptr, p, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p, CUstream stream) noexcept {
  return copy_3d(stream, p, false);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* p) noexcept { return copy_3d(nullptr, p, true); }
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* p, CUstream stream) noexcept {
  return copy_3d(stream, p, false);
}

// ---- Batches ------------------------------------------------------------------------------------

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes_bytes,
                               size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                               size_t attribute_count, CUstream stream) noexcept {
  if (targets == nullptr || sources == nullptr || sizes_bytes == nullptr || count == 0 ||
      attributes == nullptr || indices == nullptr || attribute_count == 0 ||
      attribute_count > count || indices[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    RGPU_TRY(copy_anything(stream, targets[i], sources[i], sizes_bytes[i], false));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes_bytes,
                            size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                            size_t attribute_count, size_t* failed, CUstream stream) noexcept {
  if (failed != nullptr) *failed = SIZE_MAX;
  return cuMemcpyBatchAsync_v2(targets, sources, sizes_bytes, count, attributes, indices,
                               attribute_count, stream);
}

// ---- Memsets ------------------------------------------------------------------------------------

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count,
                         CUstream stream) noexcept {
  return set(stream, target, 0, value, 1, count, 1);
}
CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count,
                          CUstream stream) noexcept {
  return set(stream, target, 0, value, 2, count, 1);
}
CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count,
                          CUstream stream) noexcept {
  return set(stream, target, 0, value, 4, count, 1);
}
CUresult cuMemsetD2D8Async(CUdeviceptr target, size_t pitch_bytes, unsigned char value,
                           size_t width, size_t height, CUstream stream) noexcept {
  return set(stream, target, pitch_bytes, value, 1, width, height);
}
CUresult cuMemsetD2D16Async(CUdeviceptr target, size_t pitch_bytes, unsigned short value,
                            size_t width, size_t height, CUstream stream) noexcept {
  return set(stream, target, pitch_bytes, value, 2, width, height);
}
CUresult cuMemsetD2D32Async(CUdeviceptr target, size_t pitch_bytes, unsigned int value,
                            size_t width, size_t height, CUstream stream) noexcept {
  return set(stream, target, pitch_bytes, value, 4, width, height);
}

CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count) noexcept {
  return cuMemsetD8Async(target, value, count, nullptr);
}
CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_t count) noexcept {
  return cuMemsetD16Async(target, value, count, nullptr);
}
CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned int value, size_t count) noexcept {
  return cuMemsetD32Async(target, value, count, nullptr);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr target, size_t pitch_bytes, unsigned char value, size_t width,
                         size_t height) noexcept {
  return cuMemsetD2D8Async(target, pitch_bytes, value, width, height, nullptr);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr target, size_t pitch_bytes, unsigned short value,
                          size_t width, size_t height) noexcept {
  return cuMemsetD2D16Async(target, pitch_bytes, value, width, height, nullptr);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr target, size_t pitch_bytes, unsigned int value, size_t width,
                          size_t height) noexcept {
  return cuMemsetD2D32Async(target, pitch_bytes, value, width, height, nullptr);
}
