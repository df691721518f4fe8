// The driver API: graphs' nodes by their kinds: made, asked about and changed, in a graph and in an
// executable one.

#include <algorithm>

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/graph.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
             size_t count, Work work) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  Graph* const graph = graphs().find(graph_handle);
  if (handle == nullptr || graph == nullptr || (dependencies == nullptr && count != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphNode* node = nullptr;
  RGPU_TRY(add_node(*graph, {dependencies, count}, std::move(work), node));
  *handle = reinterpret_cast<CUgraphNode>(node);
  return CUDA_SUCCESS;
}

// The node's work, which is to be of that kind.
template <typename Kind>
CUresult work_of(CUgraphNode handle, Kind*& work) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  GraphNode* const node = graph_nodes().find(handle);
  work = node == nullptr ? nullptr : std::get_if<Kind>(&node->work);
  return work == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

template <typename Kind>
CUresult work_of(CUgraphExec handle, CUgraphNode node_handle, Kind*& work) {
  Kind* in_graph = nullptr;
  RGPU_TRY(work_of(node_handle, in_graph));
  ExecutableGraph* const executable = executable_graphs().find(handle);
  if (executable == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ExecutableNode* const node = find_node(*executable, *graph_nodes().find(node_handle));
  work = node == nullptr ? nullptr : std::get_if<Kind>(&node->work);
  return work == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult unpack_extra(void** extra, const Kernel& kernel, std::vector<std::byte>& packed) {
  const std::byte* buffer = nullptr;
  size_t size_bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const std::byte*>(extra[1]);
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size_bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || size_bytes < kernel.parameters_size_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  packed.assign(buffer, buffer + kernel.parameters_size_bytes);
  return CUDA_SUCCESS;
}

CUresult read(const CUDA_KERNEL_NODE_PARAMS* p, KernelWork& work) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Calling calling;
  RGPU_TRY(enter(calling));
  const void* const handle = p->func != nullptr ? static_cast<const void*>(p->func) : p->kern;
  Kernel* const kernel = kernels().find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (p->extra != nullptr && p->kernelParams != nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> packed;
  if (p->extra != nullptr) {
    RGPU_TRY(unpack_extra(p->extra, *kernel, packed));
  } else {
    RGPU_TRY(pack_parameters(*kernel, p->kernelParams, packed));
  }
  work.kernel = kernel;
  work.shape.grid = {p->gridDimX, p->gridDimY, p->gridDimZ};
  work.shape.block = {p->blockDimX, p->blockDimY, p->blockDimZ};
  work.shape.dynamic_shared_size_bytes = p->sharedMemBytes;
  work.parameters = std::move(packed);
  work.function = nullptr;
  return CUDA_SUCCESS;
}

CUresult read(const CUDA_MEMCPY3D* p, CUDA_MEMCPY3D& work) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  work = *p;
  return CUDA_SUCCESS;
}

CUresult read(const CUDA_MEMSET_NODE_PARAMS* p, CUDA_MEMSET_NODE_PARAMS& work) {
  if (p == nullptr || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) ||
      p->width == 0 || p->height == 0 || p->dst % p->elementSize != 0 ||
      (p->height > 1 && p->pitch < p->width * p->elementSize) ||
      (p->elementSize < 4 && p->value >> (8 * p->elementSize) != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Calling calling;
  RGPU_TRY(enter(calling));
  if (!calling.client->is_device_address(p->dst)) return CUDA_ERROR_INVALID_VALUE;
  work = *p;
  return CUDA_SUCCESS;
}

CUresult read(const CUDA_HOST_NODE_PARAMS* p, HostWork& work) {
  if (p == nullptr || p->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work = {p->fn, p->userData};
  return CUDA_SUCCESS;
}

// An event's number alone; it is an event when the graph is launched.
template <typename Kind>
CUresult read(CUevent event, Kind& work) {
  if (events().find(event) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  work.event = event;
  return CUDA_SUCCESS;
}

template <typename Kind, typename Parameters>
CUresult add_of(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                Parameters parameters) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  Kind work;
  RGPU_TRY(read(parameters, work));
  return add(handle, graph, dependencies, count, std::move(work));
}

template <typename Kind, typename Parameters>
CUresult set(CUgraphNode node, Parameters parameters) {
  Kind* work = nullptr;
  RGPU_TRY(work_of(node, work));
  return read(parameters, *work);
}

template <typename Kind, typename Parameters>
CUresult set(CUgraphExec executable, CUgraphNode node, Parameters parameters) {
  Kind* work = nullptr;
  RGPU_TRY(work_of(executable, node, work));
  return read(parameters, *work);
}

bool is_of_kernels(CUlaunchAttributeID id) {
  constexpr CUlaunchAttributeID kKnown[] = {
      CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
      CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
      CU_LAUNCH_ATTRIBUTE_PRIORITY,
      CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
      CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
      CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
  return std::ranges::find(kKnown, id) != std::end(kKnown);
}

}  // namespace

// ---- Kernels ------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode_v2(CUgraphNode* handle, CUgraph graph,
                                 const CUgraphNode* dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* parameters) noexcept {
  return add_of<KernelWork>(handle, graph, dependencies, count, parameters);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* p) noexcept {
  KernelWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work->pointers.clear();
  for (const auto& parameter : work->kernel->parameters) {
    work->pointers.push_back(work->parameters.data() + parameter.offset_bytes);
  }
  const LaunchShape& shape = work->shape;
  *p = {};
  p->func = reinterpret_cast<CUfunction>(work->kernel);
  p->gridDimX = shape.grid[0];
  p->gridDimY = shape.grid[1];
  p->gridDimZ = shape.grid[2];
  p->blockDimX = shape.block[0];
  p->blockDimY = shape.block[1];
  p->blockDimZ = shape.block[2];
  p->sharedMemBytes = static_cast<unsigned>(shape.dynamic_shared_size_bytes);
  p->kernelParams = work->pointers.data();
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS* parameters) noexcept {
  return set<KernelWork>(node, parameters);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) noexcept {
  return set<KernelWork>(executable, node, parameters);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue* value) noexcept {
  KernelWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (value == nullptr || !is_of_kernels(id)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = std::ranges::find(work->attributes, id, &CUlaunchAttribute::id);
  *value = found != work->attributes.end() ? found->value : CUkernelNodeAttrValue{};
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue* value) noexcept {
  KernelWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (value == nullptr || !is_of_kernels(id)) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute attribute{};
  attribute.id = id;
  attribute.value = *value;
  RGPU_TRY(read_launch_attributes({&attribute, 1}, work->shape));
  std::erase_if(work->attributes, [&](const auto& each) { return each.id == id; });
  work->attributes.push_back(attribute);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode target, CUgraphNode source) noexcept {
  KernelWork* to = nullptr;
  KernelWork* from = nullptr;
  RGPU_TRY(work_of(target, to));
  RGPU_TRY(work_of(source, from));
  to->attributes = from->attributes;
  to->shape.cooperative = from->shape.cooperative;
  return CUDA_SUCCESS;
}

// ---- Copies and memsets -------------------------------------------------------------------------

CUresult cuGraphAddMemcpyNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* parameters, CUcontext) noexcept {
  return add_of<CUDA_MEMCPY3D>(handle, graph, dependencies, count, parameters);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* parameters) noexcept {
  CUDA_MEMCPY3D* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *parameters = *work;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) noexcept {
  return set<CUDA_MEMCPY3D>(node, parameters);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D* parameters, CUcontext) noexcept {
  return set<CUDA_MEMCPY3D>(executable, node, parameters);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* parameters,
                              CUcontext) noexcept {
  return add_of<CUDA_MEMSET_NODE_PARAMS>(handle, graph, dependencies, count, parameters);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node,
                                    CUDA_MEMSET_NODE_PARAMS* parameters) noexcept {
  CUDA_MEMSET_NODE_PARAMS* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *parameters = *work;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                    const CUDA_MEMSET_NODE_PARAMS* parameters) noexcept {
  return set<CUDA_MEMSET_NODE_PARAMS>(node, parameters);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* parameters,
                                        CUcontext) noexcept {
  return set<CUDA_MEMSET_NODE_PARAMS>(executable, node, parameters);
}

// ---- Host functions -----------------------------------------------------------------------------

CUresult cuGraphAddHostNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS* parameters) noexcept {
  return add_of<HostWork>(handle, graph, dependencies, count, parameters);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) noexcept {
  HostWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *parameters = {work->function, work->data};
  return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node,
                                  const CUDA_HOST_NODE_PARAMS* parameters) noexcept {
  return set<HostWork>(node, parameters);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* parameters) noexcept {
  return set<HostWork>(executable, node, parameters);
}

// ---- Events -------------------------------------------------------------------------------------

CUresult cuGraphAddEventRecordNode(CUgraphNode* handle, CUgraph graph,
                                   const CUgraphNode* dependencies, size_t count,
                                   CUevent event) noexcept {
  return add_of<RecordWork>(handle, graph, dependencies, count, event);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) noexcept {
  RecordWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = work->event;
  return CUDA_SUCCESS;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) noexcept {
  return set<RecordWork>(node, event);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                            CUevent event) noexcept {
  return set<RecordWork>(executable, node, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* handle, CUgraph graph,
                                 const CUgraphNode* dependencies, size_t count,
                                 CUevent event) noexcept {
  return add_of<WaitWork>(handle, graph, dependencies, count, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) noexcept {
  WaitWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = work->event;
  return CUDA_SUCCESS;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) noexcept {
  return set<WaitWork>(node, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                          CUevent event) noexcept {
  return set<WaitWork>(executable, node, event);
}

// ---- All kinds ----------------------------------------------------------------------------------

CUresult cuGraphAddEmptyNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) noexcept {
  return add(handle, graph, dependencies, count, EmptyWork{});
}

// The node has a copy of it.
CUresult cuGraphAddChildGraphNode(CUgraphNode* handle, CUgraph graph,
                                  const CUgraphNode* dependencies, size_t count,
                                  CUgraph child) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const Graph* const original = graphs().find(child);
  if (original == nullptr || child == graph) return CUDA_ERROR_INVALID_VALUE;
  ChildWork work;
  RGPU_TRY(clone_graph(*original, work.graph));
  work.graph->is_child = true;
  const CUresult code = add(handle, graph, dependencies, count, work);
  if (code != CUDA_SUCCESS) destroy_graph(*work.graph);
  return code;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) noexcept {
  ChildWork* work = nullptr;
  RGPU_TRY(work_of(node, work));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = reinterpret_cast<CUgraph>(work->graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const GraphNode* const node = graph_nodes().find(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(node->work);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  GraphNode* const node = graph_nodes().find(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  destroy_node(*node);
  return CUDA_SUCCESS;
}
