#include "server/torch/stored_graph.h"

#include <c10/util/Exception.h>

#include <algorithm>
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

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

std::string under(const std::string& folder, const char* name) {
  return folder.empty() ? folder : folder + "/" + name;
}

}  // namespace

// ---- StoredGraph --------------------------------------------------------------------------------

StoredGraph::StoredGraph(Source source, GraphCompiler& compiler, c10::DeviceType device_type,
                         std::shared_ptr<std::atomic<uint32_t>> live)
    : source_(std::move(source)),
      compiler_(compiler),
      device_type_(device_type),
      live_(std::move(live)),
      id_(next_id()),
      not_compiled_(why_not()) {
  if (live_->fetch_add(1) < limits::kGraphsMax) return;
  live_->fetch_sub(1);
  TORCH_CHECK(false, "the session holds ", limits::kGraphsMax,
              " graphs already: delete compiled functions that are not used any more, or call "
              "torch._dynamo.reset()");
}

StoredGraph::~StoredGraph() { live_->fetch_sub(1); }

std::string StoredGraph::why_not() const {
  if ((source_.mode & GraphMode::kCompiles) == 0) return "nobody asked for it";
  if (!compiler_.enabled()) return "the server has no compiler (--compiler)";
  for (const wire::GraphInput input : program().inputs) {
    if (input != wire::GraphInput::kTensor) return "it takes sizes that differ between calls";
  }
  if (!program().random_op.empty()) return "it draws random numbers (" + program().random_op + ")";
  return {};
}

const Compilation* StoredGraph::version(const Call& call) {
  for (const Version& known : versions_) {
    if (known.geometry_ids == call.geometry_ids) return known.compilation.get();
  }
  if (versions_.size() == kVersionsMax) return nullptr;
  CompileJob job{source_.hash, source_.encoded, call.inputs, device_type_,
                 (source_.mode & GraphMode::kUncached) == 0};
  versions_.push_back({call.geometry_ids, compiler_.compile(std::move(job))});
  return versions_.back().compilation.get();
}

bool StoredGraph::all_compiled() {
  const std::lock_guard lock(mutex_);
  return given_up_.empty() && !versions_.empty() &&
         std::all_of(versions_.begin(), versions_.end(), [](const Version& v) {
           return v.compilation->state == Compilation::State::kCompiled;
         });
}

std::shared_ptr<Artefact> StoredGraph::choose(const Call& call) {
  if (!not_compiled_.empty()) return nullptr;
  std::shared_ptr<StoredGraph> backward;
  std::shared_ptr<Artefact> artefact;
  {
    const std::lock_guard lock(mutex_);
    const Compilation* compilation = version(call);
    if (compilation == nullptr || compilation->state != Compilation::State::kCompiled) {
      return nullptr;
    }
    if (!given_up_.empty() || !call.forward_compiled.value_or(true)) return nullptr;
    artefact = compilation->artefact;
    if (!call.has_backward) return artefact;
    backward = backward_.lock();
  }
  return backward != nullptr && backward->all_compiled() ? artefact : nullptr;
}

void StoredGraph::give_up(std::string reason) {
  const std::lock_guard lock(mutex_);
  given_up_ = std::move(reason);
}

GraphFigures StoredGraph::figures() {
  GraphFigures figures;
  if (!not_compiled_.empty()) {
    if ((source_.mode & GraphMode::kCompiles) != 0) figures.reason = not_compiled_;
    return figures;
  }
  const std::lock_guard lock(mutex_);
  figures.state =
      versions_.empty() ? GraphFigures::State::kCompiling : GraphFigures::State::kCompiled;
  for (const Version& version : versions_) {
    const Compilation& compilation = *version.compilation;
    const Compilation::State state = compilation.state;
    if (state == Compilation::State::kCompiling) {
      if (figures.state != GraphFigures::State::kFailed) {
        figures.state = GraphFigures::State::kCompiling;
      }
      continue;
    }
    figures.compile_ms += compilation.compile_ms;
    if (!compilation.from_cache) ++figures.compiles;
    if (state != Compilation::State::kFailed) continue;
    figures.state = GraphFigures::State::kFailed;
    figures.reason = compilation.reason;
  }
  if (!given_up_.empty()) {
    figures.state = GraphFigures::State::kFailed;
    figures.reason = given_up_;
  }
  return figures;
}

// ---- GraphShelf ---------------------------------------------------------------------------------

GraphShelf::GraphShelf(const CompilerOptions& options, c10::DeviceType device_type)
    : cache_(under(options.folder, "graphs"), options.size_bytes_max),
      compiler_(options),
      device_type_(device_type) {}

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
  auto encoded = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  auto made = std::make_shared<StoredGraph>(
      StoredGraph::Source{std::move(hash), std::move(encoded), *std::move(program), mode, forward},
      compiler_, device_type_, live_);
  if (forward != nullptr) {
    const std::lock_guard lock(forward->mutex_);
    forward->backward_ = made;
  }
  return made;
}

}  // namespace rgpu::server
