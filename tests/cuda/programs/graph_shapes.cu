// A graph has the nodes and edges that it was given, in each way to ask; a clone has its own; what
// goes round in a circle is not instantiated.
#include <algorithm>
#include <cstring>
#include <set>

#include "check.h"

static size_t count_of(cudaError_t (*ask)(cudaGraph_t, cudaGraphNode_t*, size_t*), cudaGraph_t g) {
  size_t count = 99;
  OK(ask(g, nullptr, &count));
  return count;
}

int main() {
  OK(cudaFree(nullptr));
  cudaGraph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  GIVES(cudaErrorInvalidValue, cudaGraphCreate(nullptr, 0));
  GIVES(cudaErrorInvalidValue, cudaGraphCreate(&graph, 1));
  // a before b and c, both before d.
  cudaGraphNode_t a, b, c, d;
  OK(cudaGraphAddEmptyNode(&a, graph, nullptr, 0));
  OK(cudaGraphAddEmptyNode(&b, graph, &a, 1));
  OK(cudaGraphAddEmptyNode(&c, graph, nullptr, 0));
  OK(cudaGraphAddDependencies(graph, &a, &c, nullptr, 1));
  cudaGraphNode_t both[] = {b, c};
  OK(cudaGraphAddEmptyNode(&d, graph, both, 2));

  CHECK(count_of(cudaGraphGetNodes, graph) == 4 && count_of(cudaGraphGetRootNodes, graph) == 1);
  cudaGraphNode_t nodes[6] = {};
  size_t count = 6;
  OK(cudaGraphGetNodes(graph, nodes, &count));
  CHECK(count == 4 &&
        (std::set<cudaGraphNode_t>(nodes, nodes + 4) == std::set<cudaGraphNode_t>{a, b, c, d}));
  count = 1;
  OK(cudaGraphGetRootNodes(graph, nodes, &count));
  CHECK(count == 1 && nodes[0] == a);
  cudaGraphNode_t from[8], to[8];
  cudaGraphEdgeData data[8];
  count = 8;
  OK(cudaGraphGetEdges(graph, from, to, data, &count));
  CHECK(count == 4);
  std::set<std::pair<cudaGraphNode_t, cudaGraphNode_t>> edges;
  for (size_t i = 0; i < count; ++i) edges.insert({from[i], to[i]});
  CHECK(edges.count({a, b}) && edges.count({a, c}) && edges.count({b, d}) && edges.count({c, d}));
  count = 0;
  OK(cudaGraphNodeGetDependencies(d, nullptr, nullptr, &count));
  CHECK(count == 2);
  OK(cudaGraphNodeGetDependencies(d, nodes, data, &count));
  CHECK((nodes[0] == b && nodes[1] == c) || (nodes[0] == c && nodes[1] == b));
  count = 6;
  OK(cudaGraphNodeGetDependentNodes(a, nodes, data, &count));
  CHECK(count == 2);
  cudaGraphNodeType type = cudaGraphNodeTypeKernel;
  OK(cudaGraphNodeGetType(a, &type));
  CHECK(type == cudaGraphNodeTypeEmpty);
  GIVES(cudaErrorInvalidValue, cudaGraphAddDependencies(graph, &a, &b, nullptr, 1));

  // A clone: nodes of its own, found by those it was made from.
  cudaGraph_t clone;
  cudaGraphNode_t its_d = nullptr;
  OK(cudaGraphClone(&clone, graph));
  OK(cudaGraphNodeFindInClone(&its_d, d, clone));
  CHECK(its_d != nullptr && its_d != d);
  count = 6;
  OK(cudaGraphNodeGetDependencies(its_d, nodes, data, &count));
  CHECK(count == 2 && nodes[0] != b && nodes[0] != c);
  OK(cudaGraphDestroyNode(its_d));
  CHECK(count_of(cudaGraphGetNodes, clone) == 3 && count_of(cudaGraphGetNodes, graph) == 4);
  GIVES(cudaErrorInvalidValue, cudaGraphAddEmptyNode(&its_d, clone, &a, 1));

  char path[] = "/tmp/rgpu-graph-XXXXXX", text[4096] = {};
  const int file = mkstemp(path);
  CHECK(file >= 0);
  OK(cudaGraphDebugDotPrint(graph, path, 0));
  CHECK(read(file, text, sizeof text - 1) > 0);
  close(file);
  unlink(path);
  CHECK(strstr(text, "digraph") && strstr(text, "->"));

  cudaGraphExec_t executable = nullptr;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphAddDependencies(graph, &d, &a, nullptr, 1));
  CHECK(cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess);
  (void)cudaGetLastError();
  OK(cudaGraphRemoveDependencies(graph, &d, &a, nullptr, 1));
  OK(cudaGraphRemoveDependencies(graph, both, nodes, nullptr, 0));
  CHECK(count_of(cudaGraphGetRootNodes, graph) == 1);
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, 0));
  OK(cudaStreamSynchronize(0));
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(clone));
  OK(cudaGraphDestroy(graph));
  return pass();
}
