// The runtime API: graphs' nodes whose parameters are not the driver's: kernels by the address that
// stands for them, copies and memsets as the runtime describes them.

#include "cuda_shim/client/graph.h"

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/memory.h"
#include "cuda_shim/client/registry.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

cudaError_t read_kernel(const cudaKernelNodeParams* p, CUDA_KERNEL_NODE_PARAMS& node) {
  if (p == nullptr) return cudaErrorInvalidValue;
  Kernel* kernel = nullptr;
  RGPU_TRY(ensure_context());
  RGPU_TRY(kernel_of(p->func, kernel));
  node = {};
  node.func = reinterpret_cast<CUfunction>(kernel);
  node.gridDimX = p->gridDim.x;
  node.gridDimY = p->gridDim.y;
  node.gridDimZ = p->gridDim.z;
  node.blockDimX = p->blockDim.x;
  node.blockDimY = p->blockDim.y;
  node.blockDimZ = p->blockDim.z;
  node.sharedMemBytes = p->sharedMemBytes;
  node.kernelParams = p->kernelParams;
  node.extra = p->extra;
  return cudaSuccess;
}

// What the caller named the kernel by, kept for who asks.
void keep_name(CUgraphNode node, const void* function) {
  if (GraphNode* const found = graph_nodes().find(node)) {
    if (auto* const work = std::get_if<KernelWork>(&found->work)) work->function = function;
  }
}

CUmemorytype type_of(bool is_array) {
  return is_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
}

cudaError_t read_copy(const cudaMemcpy3DParms* p, CUDA_MEMCPY3D& node) {
  Calling calling;
  RGPU_TRY(enter_runtime(calling));
  if (p == nullptr) return cudaErrorInvalidValue;
  if (p->kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  const auto on_device = [&](const void* pointer) {
    return calling.client->is_device_address(reinterpret_cast<uint64_t>(pointer));
  };
  const bool to = p->kind == cudaMemcpyHostToDevice || p->kind == cudaMemcpyDeviceToDevice;
  const bool from = p->kind == cudaMemcpyDeviceToHost || p->kind == cudaMemcpyDeviceToDevice;
  if ((to && !on_device(p->dstPtr.ptr)) || (from && !on_device(p->srcPtr.ptr))) {
    return cudaErrorInvalidValue;
  }
  node = {};
  node.srcMemoryType = ::type_of(p->srcArray != nullptr);
  node.srcDevice = reinterpret_cast<CUdeviceptr>(p->srcPtr.ptr);
  node.srcPitch = p->srcPtr.pitch;
  node.srcHeight = p->srcPtr.ysize;
  node.srcXInBytes = p->srcPos.x;
  node.srcY = p->srcPos.y;
  node.srcZ = p->srcPos.z;
  node.dstMemoryType = ::type_of(p->dstArray != nullptr);
  node.dstDevice = reinterpret_cast<CUdeviceptr>(p->dstPtr.ptr);
  node.dstPitch = p->dstPtr.pitch;
  node.dstHeight = p->dstPtr.ysize;
  node.dstXInBytes = p->dstPos.x;
  node.dstY = p->dstPos.y;
  node.dstZ = p->dstPos.z;
  node.WidthInBytes = p->extent.width;
  node.Height = p->extent.height;
  node.Depth = p->extent.depth;
  return cudaSuccess;
}

cudaMemcpy3DParms bytes(void* target, const void* source, size_t size_bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p{};
  p.srcPtr = {const_cast<void*>(source), size_bytes, size_bytes, 1};
  p.dstPtr = {target, size_bytes, size_bytes, 1};
  p.extent = {size_bytes, 1, 1};
  p.kind = kind;
  return p;
}

// Bytes of a variable, found when the node is made.
cudaError_t in_symbol(const void* symbol, size_t size_bytes, size_t offset_bytes, void*& address) {
  size_t symbol_size_bytes = 0;
  RGPU_TRY(cudaGetSymbolSize(&symbol_size_bytes, symbol));
  if (offset_bytes > symbol_size_bytes || size_bytes > symbol_size_bytes - offset_bytes) {
    return latch(cudaErrorInvalidValue);
  }
  RGPU_TRY(cudaGetSymbolAddress(&address, symbol));
  address = static_cast<std::byte*>(address) + offset_bytes;
  return cudaSuccess;
}

void* pointer(const void* host, CUdeviceptr device, CUmemorytype type) {
  return type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : reinterpret_cast<void*>(device);
}

CUDA_MEMSET_NODE_PARAMS read_memset(const cudaMemsetParams& p) {
  return {reinterpret_cast<CUdeviceptr>(p.dst), p.pitch, p.value, p.elementSize, p.width, p.height};
}

// `call(driver's parameters)`, when the runtime's can be read.
template <typename Parameters, typename Node, typename Call>
cudaError_t with(cudaError_t (*read)(const Parameters*, Node&), const Parameters* parameters,
                 Call call) {
  Node node;
  if (const cudaError_t code = read(parameters, node); code != cudaSuccess) return latch(code);
  return latch(call(&node));
}

template <typename Call>
cudaError_t with_memset(const cudaMemsetParams* parameters, Call call) {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (parameters == nullptr) return latch(cudaErrorInvalidValue);
  const CUDA_MEMSET_NODE_PARAMS node = read_memset(*parameters);
  return latch(call(&node));
}

}  // namespace

// ---- Kernels ------------------------------------------------------------------------------------

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaKernelNodeParams* parameters) noexcept {
  return with(read_kernel, parameters, [&](const CUDA_KERNEL_NODE_PARAMS* p) {
    const CUresult code = cuGraphAddKernelNode_v2(node, graph, dependencies, count, p);
    if (code == CUDA_SUCCESS) keep_name(*node, parameters->func);
    return code;
  });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* p) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (p == nullptr) return latch(cudaErrorInvalidValue);
  CUDA_KERNEL_NODE_PARAMS found{};
  if (const CUresult code = cuGraphKernelNodeGetParams_v2(node, &found); code != CUDA_SUCCESS) {
    return latch(code);
  }
  const void* const named = std::get<KernelWork>(graph_nodes().find(node)->work).function;
  *p = {};
  p->func = named != nullptr ? const_cast<void*>(named) : found.func;
  p->gridDim = {found.gridDimX, found.gridDimY, found.gridDimZ};
  p->blockDim = {found.blockDimX, found.blockDimY, found.blockDimZ};
  p->sharedMemBytes = found.sharedMemBytes;
  p->kernelParams = found.kernelParams;
  return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const cudaKernelNodeParams* parameters) noexcept {
  return with(read_kernel, parameters, [&](const CUDA_KERNEL_NODE_PARAMS* p) {
    const CUresult code = cuGraphKernelNodeSetParams_v2(node, p);
    if (code == CUDA_SUCCESS) keep_name(node, parameters->func);
    return code;
  });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) noexcept {
  return with(read_kernel, parameters, [&](const CUDA_KERNEL_NODE_PARAMS* p) {
    return cuGraphExecKernelNodeSetParams_v2(executable, node, p);
  });
}

// ---- Copies -------------------------------------------------------------------------------------

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemcpy3DParms* parameters) noexcept {
  return with(read_copy, parameters, [&](const CUDA_MEMCPY3D* p) {
    return cuGraphAddMemcpyNode(node, graph, dependencies, count, p, nullptr);
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, size_t count,
                                     void* target, const void* source, size_t size_bytes,
                                     cudaMemcpyKind kind) noexcept {
  const cudaMemcpy3DParms parameters = bytes(target, source, size_bytes, kind);
  return cudaGraphAddMemcpyNode(node, graph, dependencies, count, &parameters);
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* p) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (p == nullptr) return latch(cudaErrorInvalidValue);
  CUDA_MEMCPY3D found{};
  if (const CUresult code = cuGraphMemcpyNodeGetParams(node, &found); code != CUDA_SUCCESS) {
    return latch(code);
  }
  *p = {};
  p->srcPtr = {pointer(found.srcHost, found.srcDevice, found.srcMemoryType), found.srcPitch,
               found.srcPitch, found.srcHeight};
  p->srcPos = {found.srcXInBytes, found.srcY, found.srcZ};
  p->dstPtr = {pointer(found.dstHost, found.dstDevice, found.dstMemoryType), found.dstPitch,
               found.dstPitch, found.dstHeight};
  p->dstPos = {found.dstXInBytes, found.dstY, found.dstZ};
  p->extent = {found.WidthInBytes, found.Height, found.Depth};
  const auto on_device = [](const void* at) {
    return connected_client()->is_device_address(reinterpret_cast<uint64_t>(at));
  };
  const bool to = on_device(p->dstPtr.ptr);
  p->kind = on_device(p->srcPtr.ptr) ? (to ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                                     : (to ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
  return cudaSuccess;
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                         const cudaMemcpy3DParms* parameters) noexcept {
  return with(read_copy, parameters,
              [&](const CUDA_MEMCPY3D* p) { return cuGraphMemcpyNodeSetParams(node, p); });
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* target, const void* source,
                                           size_t size_bytes, cudaMemcpyKind kind) noexcept {
  const cudaMemcpy3DParms parameters = bytes(target, source, size_bytes, kind);
  return cudaGraphMemcpyNodeSetParams(node, &parameters);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* parameters) noexcept {
  return with(read_copy, parameters, [&](const CUDA_MEMCPY3D* p) {
    return cuGraphExecMemcpyNodeSetParams(executable, node, p, nullptr);
  });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void* target, const void* source, size_t size_bytes,
                                               cudaMemcpyKind kind) noexcept {
  const cudaMemcpy3DParms parameters = bytes(target, source, size_bytes, kind);
  return cudaGraphExecMemcpyNodeSetParams(executable, node, &parameters);
}

// ---- Copies to and from symbols -----------------------------------------------------------------

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                           const cudaGraphNode_t* dependencies, size_t count,
                                           const void* symbol, const void* source,
                                           size_t size_bytes, size_t offset_bytes,
                                           cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphAddMemcpyNode1D(node, graph, dependencies, count, at, source, size_bytes, kind);
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph,
                                             const cudaGraphNode_t* dependencies, size_t count,
                                             void* target, const void* symbol, size_t size_bytes,
                                             size_t offset_bytes, cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphAddMemcpyNode1D(node, graph, dependencies, count, target, at, size_bytes, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol,
                                                 const void* source, size_t size_bytes,
                                                 size_t offset_bytes,
                                                 cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphMemcpyNodeSetParams1D(node, at, source, size_bytes, kind);
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* target,
                                                   const void* symbol, size_t size_bytes,
                                                   size_t offset_bytes,
                                                   cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphMemcpyNodeSetParams1D(node, target, at, size_bytes, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t executable,
                                                     cudaGraphNode_t node, const void* symbol,
                                                     const void* source, size_t size_bytes,
                                                     size_t offset_bytes,
                                                     cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphExecMemcpyNodeSetParams1D(executable, node, at, source, size_bytes, kind);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t executable,
                                                       cudaGraphNode_t node, void* target,
                                                       const void* symbol, size_t size_bytes,
                                                       size_t offset_bytes,
                                                       cudaMemcpyKind kind) noexcept {
  void* at = nullptr;
  RGPU_TRY(in_symbol(symbol, size_bytes, offset_bytes, at));
  return cudaGraphExecMemcpyNodeSetParams1D(executable, node, target, at, size_bytes, kind);
}

// ---- Memsets ------------------------------------------------------------------------------------

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, size_t count,
                                   const cudaMemsetParams* parameters) noexcept {
  return with_memset(parameters, [&](const CUDA_MEMSET_NODE_PARAMS* p) {
    return cuGraphAddMemsetNode(node, graph, dependencies, count, p, nullptr);
  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* p) noexcept {
  if (const cudaError_t code = ensure_context(); code != cudaSuccess) return latch(code);
  if (p == nullptr) return latch(cudaErrorInvalidValue);
  CUDA_MEMSET_NODE_PARAMS found{};
  if (const CUresult code = cuGraphMemsetNodeGetParams(node, &found); code != CUDA_SUCCESS) {
    return latch(code);
  }
  *p = {reinterpret_cast<void*>(found.dst),
        found.pitch,
        found.value,
        found.elementSize,
        found.width,
        found.height};
  return cudaSuccess;
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                         const cudaMemsetParams* parameters) noexcept {
  return with_memset(parameters, [&](const CUDA_MEMSET_NODE_PARAMS* p) {
    return cuGraphMemsetNodeSetParams(node, p);
  });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemsetParams* parameters) noexcept {
  return with_memset(parameters, [&](const CUDA_MEMSET_NODE_PARAMS* p) {
    return cuGraphExecMemsetNodeSetParams(executable, node, p, nullptr);
  });
}
