// BlockPool: the threads on which the blocks of all running kernels are executed.
//
// Threading: any thread calls work(); steps of one job may run on all threads of the pool at once.
// Lifetime:  the destructor joins the threads; no work() may be in progress.
// Errors:    none; a job keeps its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace rgpu::server::ptx {

// Work that many threads can help with, in small steps.
class BlockJob {
 public:
  enum class Step {
    kMore,  // Something was done; there may be more.
    kBusy,  // All that is left is in the hands of other threads.
    kDone,  // All is done.
  };
  virtual ~BlockJob() = default;
  // Runs one block for a while. `worker` is the index of the pool's thread.
  virtual Step step(uint32_t worker) = 0;
};

class BlockPool {
 public:
  // 0: as many threads as the machine has cores.
  explicit BlockPool(uint32_t thread_count);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  [[nodiscard]] uint32_t thread_count() const { return static_cast<uint32_t>(threads_.size()); }
  // Returns when `job` is done and no thread is in it. Jobs take turns.
  void work(BlockJob& job);

 private:
  struct Entry {
    BlockJob* job = nullptr;
    uint32_t helpers = 0;    // Threads inside step().
    bool finished = false;   // A step said kDone.
    bool exhausted = false;  // A step said kBusy since the last that said kMore.
  };
  void loop(uint32_t worker);
  Entry* next();  // Round robin; null if nothing wants a thread.

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::condition_variable finished_;
  std::deque<Entry*> entries_;  // At most one a caller that waits in work().
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rgpu::server::ptx
