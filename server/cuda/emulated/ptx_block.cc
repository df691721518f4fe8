#include "server/cuda/emulated/ptx_block.h"

#include <algorithm>
#include <cstring>

namespace rgpu::server::ptx {
namespace {

constexpr uint32_t kRoundsMax = 4096;  // Before a block that never waits lets others in.

uint64_t round_up(uint64_t size) { return (size + 63) / 64 * 64; }

uint32_t threads_of(const GridState& grid) { return grid.block[0] * grid.block[1] * grid.block[2]; }

}  // namespace

uint64_t block_size_bytes(const Launch& launch, const GridState& grid) {
  const uint64_t warps = (threads_of(grid) + kLanes - 1) / kLanes;
  return round_up(grid.shared_size) + round_up(launch.parameters.size()) +
         warps * round_up(launch.kernel->function->frame_size_bytes) + 64;
}

Block::Block(const Launch& launch, const GridState& grid)
    : launch_(launch),
      grid_(grid),
      thread_count_(threads_of(grid)),
      memory_(std::make_unique_for_overwrite<std::byte[]>(block_size_bytes(launch, grid))) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  shared_ = memory_.get() + (round_up(address) - address);
  parameters_ = shared_ + round_up(grid.shared_size);
  rows_ = parameters_ + round_up(launch.parameters.size());
  const uint32_t warp_count = (thread_count_ + kLanes - 1) / kLanes;
  for (uint32_t w = 0; w < warp_count; ++w) {
    Warp& warp = *warps_.emplace_back(std::make_unique<Warp>(*this, w));
    number_threads(warp, w * kLanes);
    Context& context = warp.context();
    context.shared = shared_;
    context.shared_size = grid.shared_size;
    context.parameters = parameters_;
    context.parameter_size = launch.parameters.size();
    context.shared_offsets = launch.kernel->shared_offsets.data();
    context.memory = &launch.module->memory();
    context.program = &launch.module->program();
    context.grid = &grid;
  }
}

void Block::number_threads(Warp& warp, uint32_t first) const {
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t thread = first + i;
    warp.thread_index[0][i] = thread % grid_.block[0];
    warp.thread_index[1][i] = thread / grid_.block[0] % grid_.block[1];
    warp.thread_index[2][i] = thread / grid_.block[0] / grid_.block[1];
  }
}

void Block::reset(uint64_t index) {
  const std::array<uint32_t, 3> place = {
      static_cast<uint32_t>(index % grid_.grid[0]),
      static_cast<uint32_t>(index / grid_.grid[0] % grid_.grid[1]),
      static_cast<uint32_t>(index / grid_.grid[0] / grid_.grid[1])};
  if (!launch_.parameters.empty()) {
    std::memcpy(parameters_, launch_.parameters.data(), launch_.parameters.size());
  }
  live_ = thread_count_;
  barriers_ = {};
  fault_ = {};
  const uint64_t frame_size = round_up(launch_.kernel->function->frame_size_bytes);
  for (size_t w = 0; w < warps_.size(); ++w) {
    const uint32_t threads = std::min(kLanes, thread_count_ - static_cast<uint32_t>(w) * kLanes);
    warps_[w]->context().block_index = place;
    warps_[w]->reset(threads == kLanes ? kAllLanes : (1U << threads) - 1, rows_ + w * frame_size);
  }
}

Block::Outcome Block::run(WorkerCache& cache, uint32_t worker, const std::atomic<bool>* cancelled,
                          const std::atomic<bool>& stopping) {
  const Memory& memory = launch_.module->memory();
  for (uint32_t round = 0; round < kRoundsMax; ++round) {
    if (const uint64_t epoch = memory.epoch(); epoch != cache.epoch) {
      cache.intervals = {};
      cache.epoch = epoch;
    }
    if (stopping.load(std::memory_order_relaxed) ||
        (cancelled != nullptr && cancelled->load(std::memory_order_relaxed))) {
      fault_ = {FaultCode::kLaunchTimeout, "kernel " + kernel().name + " was cancelled"};
      return Outcome::kFault;
    }
    bool ran = false;
    bool all_wait = true;
    for (const std::unique_ptr<Warp>& warp : warps_) {
      if (warp->done()) continue;
      warp->context().intervals = &cache.intervals;
      warp->context().worker = worker;
      const Warp::Outcome outcome = warp->run();
      if (outcome == Warp::Outcome::kFault) {
        set_fault(*warp);
        return Outcome::kFault;
      }
      if (outcome == Warp::Outcome::kBlocked) continue;
      ran = true;
      if (outcome == Warp::Outcome::kDone || !warp->context().waits) all_wait = false;
    }
    if (live_ == 0) return Outcome::kDone;
    const bool stuck = !ran && !std::any_of(warps_.begin(), warps_.end(),
                                            [](const auto& warp) { return warp->can_run(); });
    if (stuck) {
      fault_ = {FaultCode::kLaunchTimeout,
                "kernel " + kernel().name + ": its threads wait for each other for ever"};
      return Outcome::kFault;
    }
    if (ran && all_wait) return Outcome::kWaits;
  }
  return Outcome::kWaits;
}

void Block::set_fault(const Warp& warp) {
  const Context& context = warp.context();
  const uint32_t lane = context.fault_lane % kLanes;
  char place[256];
  std::snprintf(place, sizeof(place), " (0x%llx), block (%u,%u,%u), thread (%u,%u,%u), PTX line %u",
                static_cast<unsigned long long>(context.fault_address), context.block_index[0],
                context.block_index[1], context.block_index[2], warp.thread_index[0][lane],
                warp.thread_index[1][lane], warp.thread_index[2][lane],
                context.fault_at != nullptr ? context.fault_at->line : 0);
  fault_.code = context.fault_code;
  fault_.message = "kernel " + kernel().name + ": " + context.fault_what + place;
}

uint64_t Block::executed() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) sum += warp->executed();
  return sum;
}

void Block::arrive(uint32_t number, uint32_t expected, uint32_t rounded_threads, uint32_t threads,
                   Combine combine, uint32_t truth, uint32_t mask) {
  Barrier& barrier = barriers_[number];
  barrier.threads += threads;
  barrier.rounded += rounded_threads;
  barrier.expected = expected;
  barrier.population += static_cast<uint32_t>(__builtin_popcount(truth));
  barrier.all = barrier.all && truth == mask;
  barrier.any = barrier.any || truth != 0;
  if (combine != Combine::kNone) barrier.combine = combine;
  complete_if_due(number);
}

void Block::complete_if_due(uint32_t number) {
  Barrier& barrier = barriers_[number];
  if (barrier.threads == 0) return;
  const bool due =
      barrier.expected == 0 ? barrier.threads >= live_ : barrier.rounded >= barrier.expected;
  if (!due) return;
  const uint32_t value = barrier.combine == Combine::kPopc  ? barrier.population
                         : barrier.combine == Combine::kAnd ? (barrier.all ? 1U : 0U)
                                                            : (barrier.any ? 1U : 0U);
  barrier = {};
  for (const std::unique_ptr<Warp>& warp : warps_) warp->release(number, value);
}

void Block::threads_exited(uint32_t count) {
  live_ -= count;
  for (uint32_t number = 0; number <= kBarrierLast; ++number) complete_if_due(number);
}

}  // namespace rgpu::server::ptx
