// The runtime API: copies and memsets, also to and from symbols.

#include <cstddef>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"
#include "cuda_shim/client/registry.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.
using rgpu::wire::cuda::Extent;

namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

struct Entered {
  Calling calling;
  Stream* stream = nullptr;
};
cudaError_t enter(cudaStream_t handle, Entered& entered) {
  RGPU_TRY(enter_runtime(entered.calling));
  return to_runtime(find_stream(handle, entered.stream));
}

// Where the two sides lie: addresses say so themselves. A kind must not claim device memory that is
// none.
cudaError_t sides_of(const Client& client, cudaMemcpyKind kind, const void* target,
                     const void* source, Side& to, Side& from) {
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  to = side_of(client, address_of(target));
  from = side_of(client, address_of(source));
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool wrong = (to_device && !to.on_device) || (from_device && !from.on_device);
  return wrong ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t copy_bytes(void* target, const void* source, size_t size_bytes, cudaMemcpyKind kind,
                       cudaStream_t stream, bool blocking) {
  Entered entered;
  RGPU_TRY(enter(stream, entered));
  if (size_bytes == 0) {
    return kind > cudaMemcpyDefault ? cudaErrorInvalidMemcpyDirection : cudaSuccess;
  }
  Side to;
  Side from;
  RGPU_TRY(sides_of(*entered.calling.client, kind, target, source, to, from));
  return to_runtime(
      copy(*entered.calling.client, *entered.stream, to, from, {size_bytes, 1, 1}, blocking));
}

cudaError_t copy_rows(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                      size_t width_bytes, size_t height, cudaMemcpyKind kind, cudaStream_t stream,
                      bool blocking) {
  Entered entered;
  RGPU_TRY(enter(stream, entered));
  Side to;
  Side from;
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (width_bytes == 0 || height == 0) return cudaSuccess;
  if (target_pitch < width_bytes || source_pitch < width_bytes) return cudaErrorInvalidPitchValue;
  RGPU_TRY(sides_of(*entered.calling.client, kind, target, source, to, from));
  to.row_pitch_bytes = target_pitch;
  from.row_pitch_bytes = source_pitch;
  return to_runtime(
      copy(*entered.calling.client, *entered.stream, to, from, {width_bytes, height, 1}, blocking));
}

void place(const cudaPitchedPtr& pointer, const cudaPos& position, Side& side) {
  side.row_pitch_bytes = pointer.pitch;
  side.slice_pitch_bytes = pointer.pitch * pointer.ysize;
  side.address +=
      position.z * side.slice_pitch_bytes + position.y * side.row_pitch_bytes + position.x;
}

// Both cudaMemcpy3DParms and cudaMemcpy3DPeerParms.
template <typename Parameters>
cudaError_t copy_box(const Parameters* p, cudaMemcpyKind kind, cudaStream_t stream, bool blocking) {
  Entered entered;
  RGPU_TRY(enter(stream, entered));
  if (p == nullptr) return cudaErrorInvalidValue;
  if (p->srcArray != nullptr || p->dstArray != nullptr) return cudaErrorNotSupported;
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  const Extent extent{p->extent.width, p->extent.height, p->extent.depth};
  if (extent.width_bytes == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  if (p->srcPtr.pitch < p->srcPos.x + extent.width_bytes ||
      p->dstPtr.pitch < p->dstPos.x + extent.width_bytes) {
    return cudaErrorInvalidPitchValue;
  }
  if (extent.depth > 1 && (p->srcPtr.ysize < p->srcPos.y + extent.height ||
                           p->dstPtr.ysize < p->dstPos.y + extent.height)) {
    return cudaErrorInvalidValue;
  }
  Side to;
  Side from;
  RGPU_TRY(sides_of(*entered.calling.client, kind, p->dstPtr.ptr, p->srcPtr.ptr, to, from));
  place(p->dstPtr, p->dstPos, to);
  place(p->srcPtr, p->srcPos, from);
  return to_runtime(copy(*entered.calling.client, *entered.stream, to, from, extent, blocking));
}

cudaError_t set(void* target, size_t pitch_bytes, size_t slice_bytes, int value,
                const Extent& extent, cudaStream_t stream) {
  Entered entered;
  RGPU_TRY(enter(stream, entered));
  if (extent.width_bytes == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  if (extent.height > 1 && pitch_bytes < extent.width_bytes) return cudaErrorInvalidPitchValue;
  Side side = side_of(*entered.calling.client, address_of(target));
  side.row_pitch_bytes = pitch_bytes;
  side.slice_pitch_bytes = slice_bytes;
  return to_runtime(set_memory(*entered.calling.client, *entered.stream, side, extent,
                               static_cast<uint32_t>(value), 1));
}

cudaError_t address_in_symbol(const void* symbol, size_t size_bytes, size_t offset_bytes,
                              void*& address) {
  Calling calling;
  RGPU_TRY(enter_runtime(calling));
  Symbol found;
  RGPU_TRY(symbol_of(symbol, found));
  if (offset_bytes > found.variable->size_bytes ||
      size_bytes > found.variable->size_bytes - offset_bytes) {
    return cudaErrorInvalidValue;
  }
  uint64_t at = 0;
  RGPU_TRY(to_runtime(rgpu::cuda::address_of(*found.module, *found.variable, *calling.device, at)));
  address = reinterpret_cast<void*>(at + offset_bytes);
  return cudaSuccess;
}

cudaError_t copy_to_symbol(const void* symbol, const void* source, size_t size_bytes,
                           size_t offset_bytes, cudaMemcpyKind kind, cudaStream_t stream,
                           bool blocking) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice &&
      kind != cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  void* target = nullptr;
  RGPU_TRY(address_in_symbol(symbol, size_bytes, offset_bytes, target));
  return copy_bytes(target, source, size_bytes, kind, stream, blocking);
}

cudaError_t copy_from_symbol(void* target, const void* symbol, size_t size_bytes,
                             size_t offset_bytes, cudaMemcpyKind kind, cudaStream_t stream,
                             bool blocking) {
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice &&
      kind != cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  void* source = nullptr;
  RGPU_TRY(address_in_symbol(symbol, size_bytes, offset_bytes, source));
  return copy_bytes(target, source, size_bytes, kind, stream, blocking);
}

}  // namespace

// ---- Bytes --------------------------------------------------------------------------------------

cudaError_t cudaMemcpy(void* target, const void* source, size_t size_bytes,
                       cudaMemcpyKind kind) noexcept {
  return latch(copy_bytes(target, source, size_bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t size_bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) noexcept {
  return latch(copy_bytes(target, source, size_bytes, kind, stream, false));
}

cudaError_t cudaMemcpyPeer(void* target, int, const void* source, int, size_t size_bytes) noexcept {
  return latch(copy_bytes(target, source, size_bytes, cudaMemcpyDeviceToDevice, nullptr, true));
}

cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t size_bytes,
                                cudaStream_t stream) noexcept {
  return latch(copy_bytes(target, source, size_bytes, cudaMemcpyDeviceToDevice, stream, false));
}

cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources,
                                 const size_t* sizes_bytes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* indices,
                                 size_t attribute_count, cudaStream_t stream) noexcept {
  if (targets == nullptr || sources == nullptr || sizes_bytes == nullptr || count == 0 ||
      attributes == nullptr || indices == nullptr || attribute_count == 0 ||
      attribute_count > count || indices[0] != 0) {
    return latch(cudaErrorInvalidValue);
  }
  for (size_t i = 0; i < count; ++i) {
    const cudaError_t code =
        copy_bytes(targets[i], sources[i], sizes_bytes[i], cudaMemcpyDefault, stream, false);
    if (code != cudaSuccess) return latch(code);
  }
  return cudaSuccess;
}

// ---- Boxes --------------------------------------------------------------------------------------

cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                         size_t width_bytes, size_t height, cudaMemcpyKind kind) noexcept {
  return latch(copy_rows(target, target_pitch, source, source_pitch, width_bytes, height, kind,
                         nullptr, true));
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width_bytes, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) noexcept {
  return latch(copy_rows(target, target_pitch, source, source_pitch, width_bytes, height, kind,
                         stream, false));
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) noexcept {
  return latch(copy_box(p, p != nullptr ? p->kind : cudaMemcpyDefault, nullptr, true));
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) noexcept {
  return latch(copy_box(p, p != nullptr ? p->kind : cudaMemcpyDefault, stream, false));
}

cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) noexcept {
  return latch(copy_box(p, cudaMemcpyDeviceToDevice, nullptr, true));
}

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) noexcept {
  return latch(copy_box(p, cudaMemcpyDeviceToDevice, stream, false));
}

// The driver describes them alike.
static_assert(sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP) &&
              offsetof(cudaMemcpy3DBatchOp, extent) == offsetof(CUDA_MEMCPY3D_BATCH_OP, extent) &&
              sizeof(cudaMemcpy3DOperand) == sizeof(CUmemcpy3DOperand) &&
              static_cast<int>(cudaMemcpyOperandTypeArray) == CU_MEMCPY_OPERAND_TYPE_ARRAY);

cudaError_t cudaMemcpy3DBatchAsync(size_t count, cudaMemcpy3DBatchOp* operations,
                                   unsigned long long flags, cudaStream_t stream) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  return latch(cuMemcpy3DBatchAsync_v2(count, reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(operations),
                                       flags, stream));
}

// ---- Memsets ------------------------------------------------------------------------------------

cudaError_t cudaMemsetAsync(void* target, int value, size_t size_bytes,
                            cudaStream_t stream) noexcept {
  return latch(set(target, 0, 0, value, {size_bytes, 1, 1}, stream));
}

cudaError_t cudaMemset(void* target, int value, size_t size_bytes) noexcept {
  return cudaMemsetAsync(target, value, size_bytes, nullptr);
}

cudaError_t cudaMemset2DAsync(void* target, size_t pitch_bytes, int value, size_t width_bytes,
                              size_t height, cudaStream_t stream) noexcept {
  return latch(set(target, pitch_bytes, 0, value, {width_bytes, height, 1}, stream));
}

cudaError_t cudaMemset2D(void* target, size_t pitch_bytes, int value, size_t width_bytes,
                         size_t height) noexcept {
  return cudaMemset2DAsync(target, pitch_bytes, value, width_bytes, height, nullptr);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr target, int value, cudaExtent extent,
                              cudaStream_t stream) noexcept {
  return latch(set(target.ptr, target.pitch, target.pitch * target.ysize, value,
                   {extent.width, extent.height, extent.depth}, stream));
}

cudaError_t cudaMemset3D(cudaPitchedPtr target, int value, cudaExtent extent) noexcept {
  return cudaMemset3DAsync(target, value, extent, nullptr);
}

// ---- Symbols ------------------------------------------------------------------------------------

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) noexcept {
  if (address == nullptr) return latch(cudaErrorInvalidValue);
  return latch(address_in_symbol(symbol, 0, 0, *address));
}

cudaError_t cudaGetSymbolSize(size_t* size_bytes, const void* symbol) noexcept {
  if (size_bytes == nullptr) return latch(cudaErrorInvalidValue);
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  Symbol found;
  if (const cudaError_t code = symbol_of(symbol, found); code != cudaSuccess) return latch(code);
  *size_bytes = found.variable->size_bytes;
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* source, size_t size_bytes,
                               size_t offset_bytes, cudaMemcpyKind kind) noexcept {
  return latch(copy_to_symbol(symbol, source, size_bytes, offset_bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* source, size_t size_bytes,
                                    size_t offset_bytes, cudaMemcpyKind kind,
                                    cudaStream_t stream) noexcept {
  return latch(copy_to_symbol(symbol, source, size_bytes, offset_bytes, kind, stream, false));
}

cudaError_t cudaMemcpyFromSymbol(void* target, const void* symbol, size_t size_bytes,
                                 size_t offset_bytes, cudaMemcpyKind kind) noexcept {
  return latch(copy_from_symbol(target, symbol, size_bytes, offset_bytes, kind, nullptr, true));
}

cudaError_t cudaMemcpyFromSymbolAsync(void* target, const void* symbol, size_t size_bytes,
                                      size_t offset_bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) noexcept {
  return latch(copy_from_symbol(target, symbol, size_bytes, offset_bytes, kind, stream, false));
}
