// The driver API: devices that reach each other's memory. Emulated ones all do; of others the
// server does not say, so that copies between them are all there is.

#include <algorithm>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

bool can_reach(int from, int to) {
  const Client* const client = connected_client();
  return client != nullptr && client->info().emulated && from != to;
}

CUresult find_peer(CUcontext handle, Calling& calling, Context*& peer) {
  RGPU_TRY(enter(calling));
  peer = contexts().find(handle);
  return peer == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(from, device));
  RGPU_TRY(find_device(to, device));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = can_reach(from, to) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to) noexcept {
  Device* device = nullptr;
  RGPU_TRY(find_device(from, device));
  RGPU_TRY(find_device(to, device));
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int reaches = can_reach(from, to) ? 1 : 0;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = reaches;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What the emulated device's atomics are to its own memory, they are to another's.
CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                          const CUatomicOperation* operations, unsigned int count,
                                          CUdevice from, CUdevice to) noexcept {
  constexpr unsigned kScalars = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
  constexpr unsigned kIntegers = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED |
                                 CU_ATOMIC_CAPABILITY_REDUCTION | kScalars;
  Device* device = nullptr;
  RGPU_TRY(find_device(from, device));
  RGPU_TRY(find_device(to, device));
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  if (capabilities == nullptr || operations == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    const bool is_float = operations[i] >= CU_ATOMIC_OPERATION_FLOAT_ADD;
    const unsigned has = operations[i] == CU_ATOMIC_OPERATION_FLOAT_ADD
                             ? CU_ATOMIC_CAPABILITY_REDUCTION | kScalars
                             : (is_float ? 0 : kIntegers);
    capabilities[i] = can_reach(from, to) ? has : 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) noexcept {
  Calling calling;
  Context* peer = nullptr;
  RGPU_TRY(find_peer(handle, calling, peer));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == calling.device) return CUDA_ERROR_INVALID_DEVICE;
  if (!can_reach(calling.context->ordinal, peer->ordinal)) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  const std::lock_guard lock(calling.context->mutex);
  std::vector<uint64_t>& peers = calling.context->peers;
  if (std::ranges::find(peers, peer->id) != peers.end()) {
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  }
  peers.push_back(peer->id);
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext handle) noexcept {
  Calling calling;
  Context* peer = nullptr;
  RGPU_TRY(find_peer(handle, calling, peer));
  const std::lock_guard lock(calling.context->mutex);
  return std::erase(calling.context->peers, peer->id) != 0 ? CUDA_SUCCESS
                                                           : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
