#include "cuda_shim/client/graph.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>

#include "cuda_shim/client/errors.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kGraphsMax = 1u << 14;
constexpr size_t kNodesMax = 1u << 18;

std::atomic<uint64_t> serials{0};

CUresult clone_work(const Work& from, Work& to) {
  to = from;
  auto* const child = std::get_if<ChildWork>(&to);
  if (child == nullptr) return CUDA_SUCCESS;
  Graph* const original = child->graph;
  RGPU_TRY(clone_graph(*original, child->graph));
  child->graph->is_child = true;
  return CUDA_SUCCESS;
}

void link(GraphNode& from, GraphNode& to) {
  to.dependencies.push_back(&from);
  from.dependents.push_back(&to);
}

// What the server does next is one call of the driver's API each.
struct Issue {
  CUstream stream;

  CUresult operator()(const EmptyWork&) const { return CUDA_SUCCESS; }
  CUresult operator()(const KernelWork& work) const {
    Calling calling;
    RGPU_TRY(enter(calling));
    Stream* found = nullptr;
    RGPU_TRY(find_stream(stream, found));
    calling.context = found->context;
    calling.device = found->device;
    const CUresult code = launch(calling, *work.kernel, work.shape, work.parameters, *found);
    return code == kInvalidConfiguration ? CUDA_ERROR_INVALID_VALUE : code;
  }
  CUresult operator()(const CUDA_MEMCPY3D& work) const { return cuMemcpy3DAsync_v2(&work, stream); }
  CUresult operator()(const CUDA_MEMSET_NODE_PARAMS& work) const {
    switch (work.elementSize) {
      case 1:
        return cuMemsetD2D8Async(work.dst, work.pitch, static_cast<unsigned char>(work.value),
                                 work.width, work.height, stream);
      case 2:
        return cuMemsetD2D16Async(work.dst, work.pitch, static_cast<unsigned short>(work.value),
                                  work.width, work.height, stream);
      default:
        return cuMemsetD2D32Async(work.dst, work.pitch, work.value, work.width, work.height,
                                  stream);
    }
  }
  CUresult operator()(const HostWork& work) const {
    return cuLaunchHostFunc(stream, work.function, work.data);
  }
  CUresult operator()(const RecordWork& work) const { return cuEventRecord(work.event, stream); }
  CUresult operator()(const WaitWork& work) const {
    return cuStreamWaitEvent(stream, work.event, 0);
  }
  CUresult operator()(const ChildWork& work) const { return launch_nodes(work.nodes, stream); }
};

ExecutableNode* find_serial(std::vector<ExecutableNode>& nodes, uint64_t serial) {
  for (ExecutableNode& node : nodes) {
    if (node.serial == serial) return &node;
    if (auto* const child = std::get_if<ChildWork>(&node.work)) {
      if (ExecutableNode* const found = find_serial(child->nodes, serial)) return found;
    }
  }
  return nullptr;
}

CUresult make_executable(const GraphNode& node, ExecutableNode& made) {
  made.serial = node.serial;
  made.work = node.work;
  for (const GraphNode* const each : node.dependencies) made.dependencies.push_back(each->serial);
  std::ranges::sort(made.dependencies);
  auto* const child = std::get_if<ChildWork>(&made.work);
  if (child == nullptr) return CUDA_SUCCESS;
  const Graph* const graph = std::exchange(child->graph, nullptr);
  return order_nodes(*graph, child->nodes);
}

}  // namespace

HandleTable<Graph>& graphs() {
  static auto* const table = new HandleTable<Graph>(kGraphsMax);
  return *table;
}
HandleTable<GraphNode>& graph_nodes() {
  static auto* const table = new HandleTable<GraphNode>(kNodesMax);
  return *table;
}
HandleTable<ExecutableGraph>& executable_graphs() {
  static auto* const table = new HandleTable<ExecutableGraph>(kGraphsMax);
  return *table;
}

CUgraphNodeType type_of(const Work& work) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,      CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
      CU_GRAPH_NODE_TYPE_MEMSET,     CU_GRAPH_NODE_TYPE_HOST,   CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_GRAPH};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

// ---- Graphs and their nodes ---------------------------------------------------------------------

CUresult add_node(Graph& graph, std::span<const CUgraphNode> dependencies, Work work,
                  GraphNode*& node) {
  std::vector<GraphNode*> found;
  for (const CUgraphNode handle : dependencies) {
    GraphNode* const each = graph_nodes().find(handle);
    if (each == nullptr || each->graph != &graph || std::ranges::find(found, each) != found.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    found.push_back(each);
  }
  node = graph_nodes().create();
  if (node == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->graph = &graph;
  node->serial = ++serials;
  node->work = std::move(work);
  for (GraphNode* const each : found) link(*each, *node);
  graph.nodes.push_back(node);
  return CUDA_SUCCESS;
}

void destroy_node(GraphNode& node) {
  for (GraphNode* const each : node.dependencies) std::erase(each->dependents, &node);
  for (GraphNode* const each : node.dependents) std::erase(each->dependencies, &node);
  std::erase(node.graph->nodes, &node);
  if (const auto* const child = std::get_if<ChildWork>(&node.work)) destroy_graph(*child->graph);
  graph_nodes().destroy(&node);
}

CUresult clone_graph(const Graph& graph, Graph*& clone) {
  clone = graphs().create();
  if (clone == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::unordered_map<const GraphNode*, GraphNode*> made;
  CUresult code = retain_objects(graph.objects);
  if (code == CUDA_SUCCESS) clone->objects = graph.objects;
  for (size_t i = 0; i < graph.nodes.size() && code == CUDA_SUCCESS; ++i) {
    Work work;
    code = clone_work(graph.nodes[i]->work, work);
    GraphNode* node = nullptr;
    if (code == CUDA_SUCCESS) code = add_node(*clone, {}, std::move(work), node);
    if (code != CUDA_SUCCESS) break;
    node->original = graph.nodes[i]->serial;
    made[graph.nodes[i]] = node;
  }
  if (code != CUDA_SUCCESS) {
    destroy_graph(*clone);
    return code;
  }
  for (const GraphNode* const from : graph.nodes) {
    for (const GraphNode* const dependency : from->dependencies) {
      link(*made[dependency], *made[from]);
    }
  }
  return CUDA_SUCCESS;
}

void destroy_graph(Graph& graph) {
  while (!graph.nodes.empty()) destroy_node(*graph.nodes.back());
  release_objects(graph.objects);
  graphs().destroy(&graph);
}

// ---- Executable graphs --------------------------------------------------------------------------

CUresult order_nodes(const Graph& graph, std::vector<ExecutableNode>& nodes) {
  std::unordered_map<const GraphNode*, size_t> missing;
  std::vector<const GraphNode*> ready;
  for (const GraphNode* const node : graph.nodes) {
    missing[node] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node);
  }
  nodes.clear();
  for (size_t i = 0; i < ready.size(); ++i) {
    RGPU_TRY(make_executable(*ready[i], nodes.emplace_back()));
    for (const GraphNode* const next : ready[i]->dependents) {
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  return nodes.size() == graph.nodes.size() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_nodes(std::span<const ExecutableNode> nodes, CUstream stream) {
  for (const ExecutableNode& node : nodes) {
    if (node.enabled) RGPU_TRY(std::visit(Issue{stream}, node.work));
  }
  return CUDA_SUCCESS;
}

ExecutableNode* find_node(ExecutableGraph& executable, const GraphNode& node) {
  return find_serial(executable.nodes, node.serial);
}

// ---- User objects and parameters ----------------------------------------------------------------

CUresult retain_objects(const UserObjects& objects) {
  for (const auto& [object, count] : objects) RGPU_TRY(cuUserObjectRetain(object, count));
  return CUDA_SUCCESS;
}

void release_objects(UserObjects& objects) {
  for (const auto& [object, count] : std::exchange(objects, {})) {
    (void)cuUserObjectRelease(object, count);
  }
}

CUresult pack_parameters(const Kernel& kernel, void* const* parameters,
                         std::vector<std::byte>& packed) {
  if (parameters == nullptr && !kernel.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  packed.assign(kernel.parameters_size_bytes, std::byte{0});
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(packed.data() + kernel.parameters[i].offset_bytes, parameters[i],
                kernel.parameters[i].size_bytes);
  }
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
