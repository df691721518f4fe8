// Progress: which batches are applied, when their runs may end in any order.
//
// Threading: open() is the decode thread's; close_one() any stream's.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>

namespace rgpu::server {

class Progress {
 public:
  // The batch after the one opened last. It counts as one run until close_one() says otherwise.
  void open(uint64_t sequence);
  void add_run(uint64_t sequence);
  // Returns the last batch up to which all are applied.
  uint64_t close_one(uint64_t sequence);
  [[nodiscard]] uint64_t applied();

 private:
  std::mutex mutex_;
  std::deque<uint32_t> runs_left_;  // Of the batches after applied_.
  uint64_t applied_ = 0;
};

}  // namespace rgpu::server
