#include "server/torch/stored_graph.h"

#include <c10/util/Exception.h>

#include <utility>

#include "wire/limits.h"

namespace rgpu::server {
namespace {

// What ops of the server raise, as the wire's codes say it.
void raise_if_refused(const Status& status) {
  if (status.ok()) return;
  TORCH_CHECK_NOT_IMPLEMENTED(status.code() != Code::kUnimplemented, status.message());
  TORCH_CHECK_VALUE(false, status.message());
}

}  // namespace

std::shared_ptr<StoredGraph> GraphShelf::find(const std::string& hash,
                                              std::shared_ptr<StoredGraph> forward, int64_t mode,
                                              const ProgramContext& context) {
  const auto bytes = cache_.find(hash);
  if (!bytes) return nullptr;
  return make(hash, *bytes, std::move(forward), mode, context);
}

std::shared_ptr<StoredGraph> GraphShelf::load(std::span<const std::byte> bytes,
                                              std::shared_ptr<StoredGraph> forward, int64_t mode,
                                              const ProgramContext& context) {
  std::string hash = sha256_hex(bytes);
  std::shared_ptr<StoredGraph> made = make(hash, bytes, std::move(forward), mode, context);
  if ((mode & GraphMode::kUncached) == 0) cache_.keep(hash, bytes);
  return made;
}

std::shared_ptr<StoredGraph> GraphShelf::make(std::string hash, std::span<const std::byte> bytes,
                                              std::shared_ptr<StoredGraph> forward, int64_t mode,
                                              const ProgramContext& context) {
  const Result<wire::Graph> graph = wire::decode_graph(bytes);
  if (!graph) raise_if_refused(graph.error());
  Result<std::shared_ptr<const GraphProgram>> program = load_program(*graph, context);
  if (!program) raise_if_refused(program.error().with_context("the graph"));
  auto made = std::make_shared<StoredGraph>(live_);
  made->hash = std::move(hash);
  made->program = *std::move(program);
  made->encoded_bytes = bytes.size();
  made->mode = mode;
  made->forward = std::move(forward);
  return made;
}

StoredGraph::StoredGraph(std::shared_ptr<std::atomic<uint32_t>> live) : live_(std::move(live)) {
  const uint32_t others = live_->fetch_add(1);
  if (others < limits::kGraphsMax) return;
  live_->fetch_sub(1);
  TORCH_CHECK(false, "the session holds ", limits::kGraphsMax,
              " graphs already: delete compiled functions that are not used any more, or call "
              "torch._dynamo.reset()");
}

GraphFigures StoredGraph::figures() const { return {}; }

StoredGraph::~StoredGraph() { live_->fetch_sub(1); }

}  // namespace rgpu::server
