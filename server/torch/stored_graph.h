// StoredGraph: a graph that a session keeps under a handle, ready to run. GraphShelf: where they
// come from: the client, or the disk that all sessions share.
//
// Threading: a StoredGraph is run by any stream; its counters are atomic. The shelf: any thread.
// Lifetime:  a graph lives as long as a handle of it, or a call that runs.
// Errors:    c10 exceptions for a graph that is refused; the message names the node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "server/graph_cache.h"
#include "server/torch/graph_program.h"

namespace rgpu::server {

struct GraphMode {
  static constexpr int64_t kCompiles = 1;
  static constexpr int64_t kUncached = 2;
};

// How far its compilation is.
struct GraphFigures {
  enum class State : int64_t { kInterpreting = 0, kCompiling = 1, kCompiled = 2, kFailed = 3 };
  State state = State::kInterpreting;
  std::string reason;
  int64_t compile_ms = 0;
  int64_t compiles = 0;
};

struct StoredGraph {
  // `live` counts the session's graphs. Throws when there are too many.
  explicit StoredGraph(std::shared_ptr<std::atomic<uint32_t>> live);
  ~StoredGraph();
  StoredGraph(const StoredGraph&) = delete;
  StoredGraph& operator=(const StoredGraph&) = delete;

  std::string hash;  // SHA-256 of its bytes, 64 hex digits.
  std::shared_ptr<const GraphProgram> program;
  size_t encoded_bytes = 0;
  int64_t mode = 0;
  std::shared_ptr<StoredGraph> forward;  // Of a backward graph.

  [[nodiscard]] size_t size_bytes() const { return encoded_bytes + program->size_bytes; }
  [[nodiscard]] GraphFigures figures() const;

  std::atomic<int64_t> calls = 0;
  std::atomic<int64_t> compiled_calls = 0;

 private:
  const std::shared_ptr<std::atomic<uint32_t>> live_;
};

class GraphShelf {
 public:
  GraphShelf(const std::string& folder, uint64_t size_bytes_max) : cache_(folder, size_bytes_max) {}

  // The graph of this hash, if any session left it here; else null. Throws as load().
  [[nodiscard]] std::shared_ptr<StoredGraph> find(const std::string& hash,
                                                  std::shared_ptr<StoredGraph> forward,
                                                  int64_t mode, const ProgramContext& context);
  [[nodiscard]] std::shared_ptr<StoredGraph> load(std::span<const std::byte> bytes,
                                                  std::shared_ptr<StoredGraph> forward,
                                                  int64_t mode, const ProgramContext& context);

 private:
  [[nodiscard]] std::shared_ptr<StoredGraph> make(std::string hash,
                                                  std::span<const std::byte> bytes,
                                                  std::shared_ptr<StoredGraph> forward,
                                                  int64_t mode, const ProgramContext& context);

  GraphCache cache_;
  std::shared_ptr<std::atomic<uint32_t>> live_ = std::make_shared<std::atomic<uint32_t>>(0);
};

}  // namespace rgpu::server
