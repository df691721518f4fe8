// GraphCompiler: has graphs compiled in the background (server/compiler_process.h), keeps what came
// of it on disk for all sessions, and loads it.
//
// A package is machine code. It is only ever made by this server's own compiler, in a folder that
// belongs to the server's user alone; nothing of a client's ends up in its name or its place.
//
// Threading: compile() by any thread; it waits for nothing. A thread of its own, started with the
// first
//            job, does the rest; a worker that ends takes it and its process along.
// Errors:    a compilation that failed says why; the next one is tried all the same, until
// kDeathsMax
//            processes in a row have died.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/graph_cache.h"

namespace rgpu::server {

class CompilerProcess;

struct CompilerOptions {
  std::string python;  // "": graphs are interpreted only.
  std::string folder;  // Of what is kept; "": a temporary one, for this worker alone.
  uint64_t size_bytes_max = uint64_t{2} << 30;
  int timeout_s = 600;
};

struct GraphInputSpec {
  c10::ScalarType dtype{};
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct CompileJob {
  std::string graph_hash;
  std::shared_ptr<const std::vector<std::byte>> graph;
  std::vector<GraphInputSpec> inputs;
  c10::DeviceType device_type{};
  bool cached = true;
};

// A loaded package. Any thread.
class Artefact {
 public:
  virtual ~Artefact() = default;
  // The graph's outputs. What it changes in place are the inputs.
  [[nodiscard]] virtual std::vector<at::Tensor> run(std::vector<at::Tensor>&& inputs) = 0;
};

struct Compilation {
  enum class State : uint8_t { kCompiling, kCompiled, kFailed };
  std::atomic<State> state{State::kCompiling};
  // Constant once the state is another one.
  std::string reason;
  std::shared_ptr<Artefact> artefact;
  int64_t compile_ms = 0;
  bool from_cache = false;
};

class GraphCompiler {
 public:
  static constexpr size_t kQueueMax = 256;
  static constexpr int kDeathsMax = 3;

  explicit GraphCompiler(CompilerOptions options);
  ~GraphCompiler();
  GraphCompiler(const GraphCompiler&) = delete;
  GraphCompiler& operator=(const GraphCompiler&) = delete;

  [[nodiscard]] bool enabled() const noexcept { return !options_.python.empty(); }
  [[nodiscard]] std::shared_ptr<const Compilation> compile(CompileJob job);

 private:
  struct Work {
    std::string key;
    CompileJob job;
    std::shared_ptr<Compilation> compilation;
  };

  void run();
  void carry_out(Work& work, CompilerProcess& process);
  [[nodiscard]] bool load(const std::filesystem::path& package, Compilation& compilation);
  void make(Work& work, CompilerProcess& process, const std::filesystem::path& package);

  const CompilerOptions options_;
  std::filesystem::path packages_;  // "": no compiling; problem_ says why.
  std::string problem_;
  bool is_temporary_ = false;
  int deaths_ = 0;  // The thread's.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  // By key: those that some graph of the session uses, or that are under way.
  std::unordered_map<std::string, std::weak_ptr<Compilation>> known_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace rgpu::server
