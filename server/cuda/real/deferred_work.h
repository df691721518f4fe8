// DeferredWork: the calls that wait here while host functions of the client hold streams.
//
// CUDA takes about a thousand pieces of work behind a stream that stands still, and then makes the
// caller wait; loading a module waits for the device at once. But what lets the stream go on comes
// from the client behind those very calls. So while a gate is closed only some calls go through;
// the others wait here, in order, until no gate is closed.
//
// Threading: the caller's of the driver, but for closed(), exclude() and Exclusion.
// Lifetime:  work that is left at the end is dropped.
// Errors:    kOutOfMemory when kQueuedMax calls wait; work that fails later is given to `failed`.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "server/cuda/driver.h"
#include "server/cuda/real/driver_symbols.h"

namespace rgpu::server::cuda {

class DeferredWork {
 public:
  static constexpr size_t kPassedMax = 256;  // While a gate is closed.
  static constexpr size_t kQueuedMax = 1u << 16;
  using Work = std::function<Outcome()>;
  enum class Need : uint8_t { kNothing, kNoGate };  // kNoGate: it may wait for the device.

  explicit DeferredWork(std::function<void(const Outcome&)> failed) : failed_(std::move(failed)) {}
  ~DeferredWork();
  DeferredWork(const DeferredWork&) = delete;
  DeferredWork& operator=(const DeferredWork&) = delete;

  // Whether the next call goes through; if so it is counted.
  [[nodiscard]] bool pass(Need need = Need::kNothing);
  [[nodiscard]] Outcome defer(Work work, Need need = Need::kNothing);
  template <typename Callable>
  [[nodiscard]] Outcome submit(Callable&& work, Need need = Need::kNothing) {
    return pass(need) ? work() : defer(std::forward<Callable>(work), need);
  }
  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }

  // The stream stands still behind what it has, until open(gate). A CUresult.
  [[nodiscard]] int close(const DriverSymbols& driver, CuStream stream, uint64_t gate);
  void open(uint64_t gate);
  void open_all();  // And nothing waits any more: the end.
  [[nodiscard]] bool is_closed() const;

  // For a thread that does what might wait for the device: no gate is closed while it holds this.
  // Waits for that; false: open_all() was called.
  [[nodiscard]] bool exclude(std::unique_lock<std::mutex>& exclusion);

 private:
  struct Gate;
  struct Entry {
    Work work;
    Need need = Need::kNothing;
  };
  [[nodiscard]] bool may_run(Need need) const;
  void run_queue();

  const std::function<void(const Outcome&)> failed_;
  std::deque<Entry> queue_;
  std::unordered_map<uint64_t, std::shared_ptr<Gate>> gates_;
  size_t passed_ = 0;
  mutable std::mutex mutex_;  // Guards what follows.
  size_t closed_ = 0;
  bool ended_ = false;
  std::condition_variable changed_;
};

}  // namespace rgpu::server::cuda
