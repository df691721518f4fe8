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
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/graph_cache.h"
#include "server/torch/graph_compiler.h"
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

class StoredGraph {
 public:
  // What it was made of.
  struct Source {
    std::string hash;  // SHA-256 of its bytes, 64 hex digits.
    std::shared_ptr<const std::vector<std::byte>> encoded;
    std::shared_ptr<const GraphProgram> program;
    int64_t mode = 0;
    std::shared_ptr<StoredGraph> forward;  // Of a backward graph.
  };
  // At most so many geometries of a graph are compiled.
  static constexpr size_t kVersionsMax = 4;

  // `live` counts the session's graphs. Throws when there are too many.
  StoredGraph(Source source, GraphCompiler& compiler, c10::DeviceType device_type,
              std::shared_ptr<std::atomic<uint32_t>> live);
  ~StoredGraph();
  StoredGraph(const StoredGraph&) = delete;
  StoredGraph& operator=(const StoredGraph&) = delete;

  [[nodiscard]] const GraphProgram& program() const { return *source_.program; }
  [[nodiscard]] const StoredGraph* forward() const { return source_.forward.get(); }
  [[nodiscard]] size_t encoded_bytes() const { return source_.encoded->size(); }
  [[nodiscard]] size_t size_bytes() const { return encoded_bytes() + program().size_bytes; }
  [[nodiscard]] uint64_t id() const { return id_; }  // Of the process, never used again.

  // What runs a call with inputs of these geometries, or null: the interpreter. The first such call
  // has it compiled. `has_backward`: then forward and backward change over together.
  // `forward_compiled`: how the forward ran whose results the inputs are, if they are of one.
  struct Call {
    std::vector<uint64_t> geometry_ids;
    std::vector<GraphInputSpec> inputs;
    bool has_backward = false;
    std::optional<bool> forward_compiled;
  };
  [[nodiscard]] std::shared_ptr<Artefact> choose(const Call& call);
  // Its run() failed: from now on the graph is interpreted.
  void give_up(std::string reason);
  [[nodiscard]] GraphFigures figures();

  std::atomic<int64_t> calls = 0;
  std::atomic<int64_t> compiled_calls = 0;

 private:
  struct Version {
    std::vector<uint64_t> geometry_ids;
    std::shared_ptr<const Compilation> compilation;
  };
  [[nodiscard]] const Compilation* version(const Call& call);  // With the lock.
  [[nodiscard]] bool all_compiled();
  [[nodiscard]] std::string why_not() const;

  const Source source_;
  GraphCompiler& compiler_;
  const c10::DeviceType device_type_;
  const std::shared_ptr<std::atomic<uint32_t>> live_;
  const uint64_t id_;
  const std::string not_compiled_;       // Why it never is; "" if it is.
  std::weak_ptr<StoredGraph> backward_;  // Of a forward graph, with its lock.
  std::mutex mutex_;
  std::vector<Version> versions_;
  std::string given_up_;

  friend class GraphShelf;
};

class GraphShelf {
 public:
  GraphShelf(const CompilerOptions& options, c10::DeviceType device_type);

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
  GraphCompiler compiler_;
  const c10::DeviceType device_type_;
  std::shared_ptr<std::atomic<uint32_t>> live_ = std::make_shared<std::atomic<uint32_t>>(0);
};

}  // namespace rgpu::server
