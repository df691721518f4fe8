#include "server/cuda/emulated/ptx_run.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>

#include "server/cuda/emulated/ptx_block.h"

namespace rgpu::server::ptx {
namespace {

constexpr uint64_t kResidentSizeMax = uint64_t{1} << 30;
constexpr uint32_t kBlocksAStep = 16;
constexpr size_t kOutputSizeMax = 1 << 16;

// Collects what kernels print; whole lines go on.
class LinePrinter : public Output {
 public:
  explicit LinePrinter(const RunEnvironment& environment) : environment_(environment) {}

  void print(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    text_ += text;
    if (text_.size() < kOutputSizeMax) return;
    const size_t end = text_.rfind('\n');
    flush(end == std::string::npos ? text_.size() : end + 1);
  }
  void print_error(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    if (environment_.print_error) {
      environment_.print_error(text);
    } else {
      text_ += text;
    }
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    flush(text_.size());
  }

 private:
  void flush(size_t size) {
    if (size != 0 && environment_.print)
      environment_.print(std::string_view(text_).substr(0, size));
    text_.erase(0, size);
  }

  const RunEnvironment& environment_;
  std::mutex mutex_;
  std::string text_;
};

class LaunchJob : public BlockJob {
 public:
  LaunchJob(const Launch& launch, const GridState& grid, const RunEnvironment& environment)
      : launch_(launch),
        grid_(grid),
        environment_(environment),
        block_count_(uint64_t{grid.grid[0]} * grid.grid[1] * grid.grid[2]),
        resident_max_(resident_max()),
        caches_(environment.pool->thread_count()) {}

  Step step(uint32_t worker) override {
    for (uint32_t i = 0; i < kBlocksAStep; ++i) {
      std::unique_ptr<Block> block = take();
      if (block == nullptr) return is_done() ? Step::kDone : Step::kBusy;
      const Block::Outcome outcome =
          block->run(caches_[worker], worker, environment_.cancelled, stopping_);
      if (give(std::move(block), outcome)) return is_done() ? Step::kDone : Step::kMore;
    }
    return Step::kMore;
  }

  [[nodiscard]] Fault take_fault() { return std::move(fault_); }
  [[nodiscard]] uint64_t executed() const { return executed_; }

 private:
  uint64_t resident_max() const {
    if (launch_.cooperative) return UINT64_MAX;
    const uint64_t threads = environment_.pool->thread_count();
    const uint64_t size = block_size_bytes(launch_, grid_);
    const uint64_t wanted = uint64_t{environment_.multiprocessor_count} * 8;
    return std::max(threads + 1, std::min(wanted, kResidentSizeMax / size));
  }

  // A new block and one that waits, in turn. Null: none is left for this thread.
  std::unique_ptr<Block> take() {
    std::unique_lock lock(mutex_);
    if (stopping_) return nullptr;
    const bool may_start = started_ < block_count_ && resident_ < resident_max_;
    if (!waiting_.empty() && (!may_start || turn_++ % 2 == 0)) {
      std::unique_ptr<Block> block = std::move(waiting_.front());
      waiting_.pop_front();
      return block;
    }
    if (!may_start) return nullptr;
    const uint64_t index = started_++;
    ++resident_;
    std::unique_ptr<Block> block;
    if (!idle_.empty()) {
      block = std::move(idle_.back());
      idle_.pop_back();
    }
    lock.unlock();
    if (block == nullptr) block = std::make_unique<Block>(launch_, grid_);
    block->reset(index);
    return block;
  }

  // True: the thread may as well look at other launches.
  bool give(std::unique_ptr<Block> block, Block::Outcome outcome) {
    const std::lock_guard lock(mutex_);
    if (outcome == Block::Outcome::kWaits && !stopping_) {
      waiting_.push_back(std::move(block));
      return true;
    }
    --resident_;
    executed_ += block->executed();
    if (outcome == Block::Outcome::kDone) {
      ++done_;
      idle_.push_back(std::move(block));
      return done_ == block_count_;
    }
    if (outcome == Block::Outcome::kFault && fault_.code == FaultCode::kNone)
      fault_ = block->fault();
    stopping_ = true;
    resident_ -= waiting_.size();
    waiting_.clear();
    return true;
  }

  bool is_done() {
    const std::lock_guard lock(mutex_);
    return stopping_ ? resident_ == 0 : done_ == block_count_;
  }

  const Launch& launch_;
  const GridState& grid_;
  const RunEnvironment& environment_;
  const uint64_t block_count_;
  const uint64_t resident_max_;
  std::vector<WorkerCache> caches_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Block>> waiting_;  // At most resident_max_.
  std::vector<std::unique_ptr<Block>> idle_;
  uint64_t started_ = 0;
  uint64_t done_ = 0;
  uint64_t resident_ = 0;
  uint64_t executed_ = 0;
  uint32_t turn_ = 0;
  std::atomic<bool> stopping_ = false;
  Fault fault_;
};

Fault check(const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const auto invalid = [&kernel](const char* what) {
    return Fault{FaultCode::kInvalidValue, "kernel " + kernel.name + ": " + what};
  };
  if (!kernel.error.empty()) return {FaultCode::kInvalidPtx, kernel.error};
  if (launch.parameters.size() < kernel.parameter_size_bytes)
    return invalid("parameters are missing");
  uint64_t threads = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0 || launch.block[i] > 1024)
      return invalid("an empty or too large grid or block");
    threads *= launch.block[i];
  }
  if (threads > 1024) return invalid("more than 1024 threads a block");
  if (launch.grid[1] > 65535 || launch.grid[2] > 65535 || launch.grid[0] > 0x7fff'ffff)
    return invalid("too large a grid");
  if (uint64_t{kernel.static_shared_size_bytes} + launch.dynamic_shared_size_bytes > (1 << 20)) {
    return invalid("more than 1 MiB of shared memory");
  }
  return {};
}

// What cooperative groups find through %envreg1 and 2: a size, then the barrier's word.
constexpr uint64_t kSyncWordsSize = 64;

}  // namespace

Fault run(const Launch& launch, RunEnvironment& environment) {
  if (Fault fault = check(launch); fault.code != FaultCode::kNone) return fault;
  LinePrinter printer(environment);
  GridState grid;
  grid.grid = launch.grid;
  grid.block = launch.block;
  grid.dynamic_shared_size = launch.dynamic_shared_size_bytes;
  grid.shared_size = launch.kernel->static_shared_size_bytes + launch.dynamic_shared_size_bytes;
  grid.multiprocessor_count = std::max(environment.multiprocessor_count, 1U);
  grid.clock_khz = environment.clock_khz;
  grid.grid_id = environment.grid_id;
  grid.output = &printer;
  if (launch.cooperative) {
    const Result<uint64_t> words = launch.module->memory().allocate(kSyncWordsSize, 64);
    if (!words) return {FaultCode::kOutOfMemory, words.error().message()};
    grid.sync_words = *words;
    std::memset(reinterpret_cast<void*>(grid.sync_words), 0, kSyncWordsSize);
    const auto size = static_cast<uint32_t>(kSyncWordsSize);
    std::memcpy(reinterpret_cast<void*>(grid.sync_words), &size, sizeof(size));
  }
  LaunchJob job(launch, grid, environment);
  environment.pool->work(job);
  if (grid.sync_words != 0) launch.module->memory().free(grid.sync_words);
  printer.finish();
  environment.executed_lane_instructions = job.executed();
  return job.take_fault();
}

}  // namespace rgpu::server::ptx
