// Graph: work that a program wrote down to be done again and again.
//
// A graph is this side's alone. Instantiating one puts its nodes into an order that its edges
// allow; launching issues them to the stream in that order, so that host memory is read, and
// written, at each launch.
//
// Threading: as CUDA has it: a program does not use one graph from two threads at once.
// Lifetime:  handles as HandleTable says. Nodes live in their graph; an executable graph has copies
//            of them and outlives it.
// Errors:    CUresult.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "cuda_shim/client/context.h"
#include "cuda_shim/client/handle_table.h"
#include "cuda_shim/client/launch.h"

namespace rgpu::cuda {

struct Graph;
struct ExecutableNode;

struct EmptyWork {};
struct KernelWork {
  const void* function = nullptr;  // As the runtime's caller named it; nullptr: by the handle.
  Kernel* kernel = nullptr;
  LaunchShape shape;
  std::vector<std::byte> parameters;  // Packed.
  std::vector<void*> pointers;        // To each of them, for who asks.
  std::vector<CUlaunchAttribute> attributes;
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct RecordWork {
  CUevent event = nullptr;
};
struct WaitWork {
  CUevent event = nullptr;
};
struct ChildWork {
  Graph* graph = nullptr;             // A node's: its own.
  std::vector<ExecutableNode> nodes;  // An executable node's.
};
using Work = std::variant<EmptyWork, KernelWork, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, HostWork,
                          RecordWork, WaitWork, ChildWork>;

struct GraphNode {
  Graph* graph = nullptr;
  uint64_t serial = 0;    // Its own alone;
  uint64_t original = 0;  // that of the node it was cloned from.
  Work work;
  std::vector<GraphNode*> dependencies;
  std::vector<GraphNode*> dependents;
};

using UserObjects = std::vector<std::pair<CUuserObject, unsigned>>;

struct Graph {
  std::vector<GraphNode*> nodes;  // In the order of their making.
  bool is_child = false;          // A node's, and destroyed with it.
  UserObjects objects;            // References that it holds.
};

struct ExecutableNode {
  uint64_t serial = 0;  // The graph's node it was made from.
  Work work;
  bool enabled = true;
  std::vector<uint64_t> dependencies;  // Serials, sorted.
};

struct ExecutableGraph {
  cuuint64_t flags = 0;
  std::vector<ExecutableNode> nodes;  // In an order that the edges allow.
  UserObjects objects;
};

[[nodiscard]] HandleTable<Graph>& graphs();
[[nodiscard]] HandleTable<GraphNode>& graph_nodes();
[[nodiscard]] HandleTable<ExecutableGraph>& executable_graphs();

[[nodiscard]] CUgraphNodeType type_of(const Work& work);

// CUDA_ERROR_INVALID_VALUE where the dependencies are not nodes of the graph, each once.
[[nodiscard]] CUresult add_node(Graph& graph, std::span<const CUgraphNode> dependencies, Work work,
                                GraphNode*& node);
void destroy_node(GraphNode& node);
[[nodiscard]] CUresult clone_graph(const Graph& graph, Graph*& clone);
void destroy_graph(Graph& graph);

// CUDA_ERROR_INVALID_VALUE when the edges go round in a circle.
[[nodiscard]] CUresult order_nodes(const Graph& graph, std::vector<ExecutableNode>& nodes);
[[nodiscard]] CUresult launch_nodes(std::span<const ExecutableNode> nodes, CUstream stream);
// The executable copy of a node, also of a child graph's; nullptr: none.
[[nodiscard]] ExecutableNode* find_node(ExecutableGraph& executable, const GraphNode& node);

// Takes references beside those that there are.
[[nodiscard]] CUresult retain_objects(const UserObjects& objects);
void release_objects(UserObjects& objects);

// The kernel's parameters, packed as its layout has them.
[[nodiscard]] CUresult pack_parameters(const Kernel& kernel, void* const* parameters,
                                       std::vector<std::byte>& packed);

}  // namespace rgpu::cuda
