#include "server/torch/graph_compiler.h"

#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <sys/file.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "server/compiler_process.h"

namespace rgpu::server {
namespace {

namespace fs = std::filesystem;
using State = Compilation::State;

constexpr std::chrono::seconds kIdle{60};  // Then the process is ended.

class Package final : public Artefact {
 public:
  explicit Package(const fs::path& path) : loader_(path.string()) {}
  std::vector<at::Tensor> run(std::vector<at::Tensor>&& inputs) override {
    return loader_.boxed_run(std::move(inputs));
  }

 private:
  torch::inductor::AOTIModelPackageLoader loader_;
};

template <typename Numbers>
void append(std::string& text, const Numbers& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(numbers[i]);
  }
}

// "dtype:sizes:strides" of each input, as rgpu_compile reads them.
std::string geometries(const std::vector<GraphInputSpec>& inputs) {
  std::string text;
  for (const GraphInputSpec& input : inputs) {
    if (!text.empty()) text += ";";
    text += std::to_string(static_cast<int>(input.dtype)) + ":";
    append(text, input.sizes);
    text += ":";
    append(text, input.strides);
  }
  return text;
}

// Everything that a package depends on.
std::string key_of(const CompileJob& job) {
  const std::string text = job.graph_hash + "\n" + geometries(job.inputs) + "\n" +
                           c10::DeviceTypeName(job.device_type, /*lower_case=*/true) +
                           "\n" RGPU_TORCH_VERSION "\n" RGPU_VERSION "\n" +
                           at::get_cpu_capability();
  return sha256_hex(std::as_bytes(std::span(text)));
}

// Held by the worker that compiles a package, so that the others wait for it and do not compile it
// too.
class FileLock {
 public:
  FileLock(const fs::path& path, const std::atomic<bool>& cancelled)
      : file_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    while (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      if (cancelled) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int file_;
};

void fail(Compilation& compilation, std::string reason) {
  compilation.reason = std::move(reason);
  compilation.state = State::kFailed;
}

}  // namespace

GraphCompiler::GraphCompiler(CompilerOptions options) : options_(std::move(options)) {
  if (!enabled()) return;
  if (options_.folder.empty()) {
    std::string name = (fs::temp_directory_path() / "rgpu-graphs.XXXXXX").string();
    is_temporary_ = mkdtemp(name.data()) != nullptr;
    packages_ = name;
  } else {
    packages_ = fs::path(options_.folder) / "packages";
  }
  problem_ = prepare_private_folder(packages_);
}

GraphCompiler::~GraphCompiler() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::error_code error;
  if (is_temporary_) fs::remove_all(packages_, error);
}

std::shared_ptr<const Compilation> GraphCompiler::compile(CompileJob job) {
  std::string key = key_of(job);
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Compilation>& known = known_[key];
  if (std::shared_ptr<Compilation> found = known.lock()) return found;
  const auto compilation = std::make_shared<Compilation>();
  known = compilation;
  if (!problem_.empty()) {
    fail(*compilation, "the cache cannot be used: " + problem_);
  } else if (queue_.size() == kQueueMax) {
    fail(*compilation, "too many graphs wait for the compiler");
  } else {
    queue_.push_back({std::move(key), std::move(job), compilation});
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }
  return compilation;
}

void GraphCompiler::run() {
  CompilerProcess process(options_.python, packages_);
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (queue_.empty()) {
      const auto wanted = [this] { return ends_ || !queue_.empty(); };
      if (!changed_.wait_for(lock, kIdle, wanted) && process.running()) process.stop();
      continue;
    }
    Work work = std::move(queue_.front());
    queue_.pop_front();
    if (work.compilation.use_count() == 1) continue;  // Its graph is gone.
    lock.unlock();
    carry_out(work, process);
    lock.lock();
  }
}

void GraphCompiler::carry_out(Work& work, CompilerProcess& process) {
  Compilation& compilation = *work.compilation;
  const fs::path package = packages_ / (work.key + ".pt2");
  compilation.from_cache = true;
  if (load(package, compilation)) return;
  const FileLock alone(packages_ / (work.key + ".lock"), ends_);
  if (load(package, compilation)) return;  // Another worker was first.
  compilation.from_cache = false;
  make(work, process, package);
}

// False if there is none; one that cannot be loaded is removed.
bool GraphCompiler::load(const fs::path& package, Compilation& compilation) {
  std::error_code error;
  if (!fs::exists(package, error)) return false;
  fs::last_write_time(package, fs::file_time_type::clock::now(), error);  // Its last use.
  try {
    compilation.artefact = std::make_shared<Package>(package);
  } catch (const std::exception&) {
    fs::remove(package, error);
    return false;
  }
  compilation.state = State::kCompiled;
  return true;
}

void GraphCompiler::make(Work& work, CompilerProcess& process, const fs::path& package) {
  Compilation& compilation = *work.compilation;
  if (deaths_ == kDeathsMax) {
    fail(compilation, "the compiler died " + std::to_string(kDeathsMax) + " times in a row");
    return;
  }
  const fs::path graph = packages_ / (work.key + ".graph");
  if (!write_whole_file(graph, *work.job.graph)) {
    fail(compilation, "the graph cannot be written to " + packages_.string());
    return;
  }
  const auto began = std::chrono::steady_clock::now();
  const std::string line = "compile\t" + graph.string() + "\t" + work.key + ".pt2\t" +
                           c10::DeviceTypeName(work.job.device_type, /*lower_case=*/true) + "\t" +
                           geometries(work.job.inputs);
  const Result<std::string> answer =
      process.ask(line, std::chrono::seconds(options_.timeout_s), ends_);
  const auto took = std::chrono::steady_clock::now() - began;
  compilation.compile_ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
  std::error_code error;
  fs::remove(graph, error);
  if (!answer) {
    ++deaths_;
    fail(compilation, answer.error().message());
    return;
  }
  deaths_ = 0;
  if (*answer != "ok") {
    const size_t tab = answer->find('\t');
    fail(compilation, tab == std::string::npos ? *answer : answer->substr(tab + 1));
    return;
  }
  fs::rename(process.folder() / (work.key + ".pt2"), package, error);
  fs::remove(packages_ / (work.key + ".lock"), error);
  if (!load(package, compilation)) {
    fail(compilation, "the package that the compiler made cannot be loaded");
  }
  trim_folder(packages_, options_.size_bytes_max, package);
  if (!work.job.cached) fs::remove(package, error);  // It is loaded.
}

}  // namespace rgpu::server
