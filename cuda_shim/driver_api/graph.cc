// The driver API: graphs, their edges, and executable graphs. Nodes' own parameters:
// graph_nodes.cc.

#include "cuda_shim/client/graph.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cuda_shim/client/errors.h"

using namespace rgpu::cuda;  // NOLINT: this file is nothing but the API's functions.

namespace {

constexpr cuuint64_t kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

template <typename Object>
CUresult find(HandleTable<Object>& table, const void* handle, Object*& object) {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  object = table.find(handle);
  return object == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult find(CUgraph handle, Graph*& graph) { return find(graphs(), handle, graph); }
CUresult find(CUgraphNode handle, GraphNode*& node) { return find(graph_nodes(), handle, node); }
CUresult find(CUgraphExec handle, ExecutableGraph*& executable) {
  return find(executable_graphs(), handle, executable);
}

CUgraphNode handle_of(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }

// CUDA's way to hand out a list: with no array its length; else as much as there is room for, the
// rest of the array empty.
CUresult give(const std::vector<GraphNode*>& nodes, CUgraphNode* array, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (array == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) array[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUresult give_with_edges(const std::vector<GraphNode*>& nodes, CUgraphNode* array,
                         CUgraphEdgeData* edges, size_t* count) {
  if (array == nullptr && edges != nullptr) return CUDA_ERROR_INVALID_VALUE;
  RGPU_TRY(give(nodes, array, count));
  for (size_t i = 0; edges != nullptr && i < *count; ++i) edges[i] = {};
  return CUDA_SUCCESS;
}

struct Edge {
  GraphNode* from = nullptr;
  GraphNode* to = nullptr;
};

CUresult read_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                    const CUgraphEdgeData* data, size_t count, std::vector<Edge>& edges) {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Edge edge;
    RGPU_TRY(find(from[i], edge.from));
    RGPU_TRY(find(to[i], edge.to));
    if (edge.from->graph != graph || edge.to->graph != graph || edge.from == edge.to) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Programmatic launches would need the device's help.
    if (data != nullptr && data[i].type != 0) return CUDA_ERROR_NOT_SUPPORTED;
    edges.push_back(edge);
  }
  return CUDA_SUCCESS;
}

bool is_linked(const Edge& edge) {
  return std::ranges::find(edge.from->dependents, edge.to) != edge.from->dependents.end();
}

// Which of its own list each node depends on.
std::vector<std::vector<size_t>> shape_of(const std::vector<ExecutableNode>& nodes) {
  std::vector<std::vector<size_t>> shape(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const uint64_t serial : nodes[i].dependencies) {
      const auto found = std::ranges::find(nodes, serial, &ExecutableNode::serial);
      shape[i].push_back(static_cast<size_t>(found - nodes.begin()));
    }
    std::ranges::sort(shape[i]);
  }
  return shape;
}

CUgraphExecUpdateResult compare(const std::vector<ExecutableNode>& a,
                                const std::vector<ExecutableNode>& b) {
  if (shape_of(a) != shape_of(b)) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].work.index() != b[i].work.index()) {
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    }
    const auto* const child = std::get_if<ChildWork>(&a[i].work);
    if (child == nullptr) continue;
    const auto result = compare(child->nodes, std::get<ChildWork>(b[i].work).nodes);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// The nodes' names stay those of the graph that they were made from.
void replace(std::vector<ExecutableNode>& nodes, std::vector<ExecutableNode>& by) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (auto* const child = std::get_if<ChildWork>(&nodes[i].work)) {
      replace(child->nodes, std::get<ChildWork>(by[i].work).nodes);
    } else {
      nodes[i].work = std::move(by[i].work);
    }
  }
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, cuuint64_t flags) {
  Graph* graph = nullptr;
  RGPU_TRY(find(graph_handle, graph));
  if (handle == nullptr || (flags & ~kInstantiateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<ExecutableNode> nodes;
  RGPU_TRY(order_nodes(*graph, nodes));
  RGPU_TRY(retain_objects(graph->objects));
  ExecutableGraph* const executable = executable_graphs().create();
  if (executable == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  executable->flags = flags;
  executable->nodes = std::move(nodes);
  executable->objects = graph->objects;
  *handle = reinterpret_cast<CUgraphExec>(executable);
  return CUDA_SUCCESS;
}

}  // namespace

// ---- Graphs -------------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* handle, unsigned int flags) noexcept {
  if (!initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Graph* const graph = graphs().create();
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUgraph>(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  if (graph->is_child) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(*graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* handle, CUgraph original) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(original, graph));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graph* clone = nullptr;
  RGPU_TRY(clone_graph(*graph, clone));
  *handle = reinterpret_cast<CUgraph>(clone);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* handle, CUgraphNode original, CUgraph clone) noexcept {
  Graph* graph = nullptr;
  GraphNode* node = nullptr;
  RGPU_TRY(find(clone, graph));
  RGPU_TRY(find(original, node));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = std::ranges::find(graph->nodes, node->serial, &GraphNode::original);
  if (found == graph->nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  *handle = handle_of(*found);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  return give(graph->nodes, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  std::vector<GraphNode*> roots;
  std::ranges::copy_if(graph->nodes, std::back_inserter(roots),
                       [](const GraphNode* node) { return node->dependencies.empty(); });
  return give(roots, nodes, count);
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "w"), &std::fclose);
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  constexpr const char* kNames[] = {"KERNEL", "MEMCPY", "MEMSET",     "HOST",
                                    "GRAPH",  "EMPTY",  "WAIT_EVENT", "EVENT_RECORD"};
  std::fprintf(file.get(), "digraph dot {\n");
  for (const GraphNode* const node : graph->nodes) {
    const auto* const kernel = std::get_if<KernelWork>(&node->work);
    std::fprintf(file.get(), "\"%llu\" [label=\"%s%s%s\"];\n",
                 static_cast<unsigned long long>(node->serial), kNames[type_of(node->work)],
                 kernel != nullptr ? "\\n" : "",
                 kernel != nullptr ? kernel->kernel->name.c_str() : "");
    for (const GraphNode* const next : node->dependents) {
      std::fprintf(file.get(), "\"%llu\" -> \"%llu\";\n",
                   static_cast<unsigned long long>(node->serial),
                   static_cast<unsigned long long>(next->serial));
    }
  }
  std::fprintf(file.get(), "}\n");
  return CUDA_SUCCESS;
}

// ---- Edges --------------------------------------------------------------------------------------

CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edges, size_t* count) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> begins;
  std::vector<GraphNode*> ends;
  for (GraphNode* const node : graph->nodes) {
    for (GraphNode* const next : node->dependents) {
      begins.push_back(node);
      ends.push_back(next);
    }
  }
  size_t same = *count;
  RGPU_TRY(give(begins, from, &same));
  return give_with_edges(ends, to, edges, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes,
                                       CUgraphEdgeData* edges, size_t* count) noexcept {
  GraphNode* node = nullptr;
  RGPU_TRY(find(handle, node));
  return give_with_edges(node->dependencies, nodes, edges, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes,
                                         CUgraphEdgeData* edges, size_t* count) noexcept {
  GraphNode* node = nullptr;
  RGPU_TRY(find(handle, node));
  return give_with_edges(node->dependents, nodes, edges, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) noexcept {
  std::vector<Edge> edges;
  RGPU_TRY(read_edges(graph, from, to, data, count, edges));
  if (std::ranges::any_of(edges, is_linked)) return CUDA_ERROR_INVALID_VALUE;
  for (const Edge& edge : edges) {
    if (is_linked(edge)) continue;  // Twice in one call.
    edge.to->dependencies.push_back(edge.from);
    edge.from->dependents.push_back(edge.to);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) noexcept {
  std::vector<Edge> edges;
  RGPU_TRY(read_edges(graph, from, to, data, count, edges));
  if (!std::ranges::all_of(edges, is_linked)) return CUDA_ERROR_INVALID_VALUE;
  for (const Edge& edge : edges) {
    std::erase(edge.to->dependencies, edge.from);
    std::erase(edge.from->dependents, edge.to);
  }
  return CUDA_SUCCESS;
}

// ---- Executable graphs --------------------------------------------------------------------------

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph,
                                     unsigned long long flags) noexcept {
  return instantiate(handle, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* handle, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) noexcept {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->hErrNode_out = nullptr;
  const CUresult code = instantiate(handle, graph, parameters->flags);
  parameters->result_out =
      code == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return code;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) noexcept {
  ExecutableGraph* executable = nullptr;
  RGPU_TRY(find(handle, executable));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = executable->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) noexcept {
  ExecutableGraph* executable = nullptr;
  RGPU_TRY(find(handle, executable));
  Calling calling;
  RGPU_TRY(enter(calling));
  Stream* found = nullptr;
  RGPU_TRY(find_stream(stream, found));
  return launch_nodes(executable->nodes, stream);
}

// Nothing has to be brought to the device before.
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) noexcept {
  ExecutableGraph* executable = nullptr;
  RGPU_TRY(find(handle, executable));
  Stream* found = nullptr;
  return find_stream(stream, found);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) noexcept {
  ExecutableGraph* executable = nullptr;
  RGPU_TRY(find(handle, executable));
  release_objects(executable->objects);
  executable_graphs().destroy(executable);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node_handle,
                               unsigned int enabled) noexcept {
  ExecutableGraph* executable = nullptr;
  GraphNode* node = nullptr;
  RGPU_TRY(find(handle, executable));
  RGPU_TRY(find(node_handle, node));
  ExecutableNode* const found = find_node(*executable, *node);
  const CUgraphNodeType type = type_of(node->work);
  // Kernels, copies and memsets alone can be left out.
  if (found == nullptr || type > CU_GRAPH_NODE_TYPE_MEMSET) return CUDA_ERROR_INVALID_VALUE;
  found->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node_handle,
                               unsigned int* enabled) noexcept {
  ExecutableGraph* executable = nullptr;
  GraphNode* node = nullptr;
  RGPU_TRY(find(handle, executable));
  RGPU_TRY(find(node_handle, node));
  const ExecutableNode* const found = find_node(*executable, *node);
  if (found == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *enabled = found->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

// Node by node, in the order of their making: the graph must be of the same shape.
CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle,
                              CUgraphExecUpdateResultInfo* info) noexcept {
  ExecutableGraph* executable = nullptr;
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, executable));
  RGPU_TRY(find(graph_handle, graph));
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  std::vector<ExecutableNode> nodes;
  RGPU_TRY(order_nodes(*graph, nodes));
  info->result = compare(executable->nodes, nodes);
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  replace(executable->nodes, nodes);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node_handle,
                                            CUgraph child) noexcept {
  ExecutableGraph* executable = nullptr;
  GraphNode* node = nullptr;
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, executable));
  RGPU_TRY(find(node_handle, node));
  RGPU_TRY(find(child, graph));
  ExecutableNode* const found = find_node(*executable, *node);
  auto* const work = found == nullptr ? nullptr : std::get_if<ChildWork>(&found->work);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ExecutableNode> nodes;
  RGPU_TRY(order_nodes(*graph, nodes));
  if (compare(work->nodes, nodes) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  replace(work->nodes, nodes);
  return CUDA_SUCCESS;
}

// ---- User objects -------------------------------------------------------------------------------

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned int count,
                                 unsigned int flags) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  if (count == 0 || (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  RGPU_TRY(cuUserObjectRetain(object, count));
  // Moved: the caller's own references become the graph's.
  if (flags != 0) RGPU_TRY(cuUserObjectRelease(object, count));
  graph->objects.emplace_back(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object,
                                  unsigned int count) noexcept {
  Graph* graph = nullptr;
  RGPU_TRY(find(handle, graph));
  unsigned held = 0;
  for (const auto& [each, references] : graph->objects) held += each == object ? references : 0;
  if (count == 0 || held < count) return CUDA_ERROR_INVALID_VALUE;
  std::erase_if(graph->objects, [&](const auto& entry) { return entry.first == object; });
  if (held > count) graph->objects.emplace_back(object, held - count);
  return cuUserObjectRelease(object, count);
}
