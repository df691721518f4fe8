// Streams: the emulated device's queues of work, a thread for each stream that is used.
//
// Work on one stream runs in order. A piece may wait for pieces of other streams, all of which were
// submitted before, so that no circle can close; except at a gate, which is opened from outside.
// fence() is work that comes after everything submitted before it on its device, and before
// everything after it.
//
// Threading: submit(), fence(), create(), destroy() and after_all() are one thread's; open_gate()
// any. Lifetime:  the destructor drops what has not begun, waits for what runs, and joins the
// threads. Errors:    none. submit() waits while a stream holds kQueuedMax pieces, unless a gate is
// closed: what
//            opens it may be behind.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace rgpu::server::cuda {

class Streams {
 public:
  static constexpr size_t kQueuedMax = 1u << 16;  // Pieces of a stream.
  static constexpr uint64_t kQueuedSizeBytesMax = uint64_t{1}
                                                  << 30;  // That all of them hold on to.
  using Work = std::function<void()>;
  // The piece `sequence` of a stream; 0: none.
  struct Mark {
    uint32_t stream = 0;
    uint64_t sequence = 0;
  };

  Streams() = default;
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // The stream's next use is of a new one. Not created: one that waits for the legacy stream.
  void create(uint32_t stream, bool non_blocking);
  void destroy(uint32_t stream);
  // `size_bytes`: what the work holds on to.
  Mark submit(uint32_t stream, Work work, uint64_t size_bytes = 0);
  // The stream's next piece comes after that one as well.
  void wait_for(uint32_t stream, const Mark& mark);
  void fence(uint32_t device, Work work);
  // Whether a fence of the device has not run yet.
  [[nodiscard]] bool fenced(uint32_t device);
  // Runs once that piece is done, on a thread of its stream's that waits for nothing else.
  void after(const Mark& mark, Work work);
  // Runs when all that was submitted so far on every stream is done.
  void after_all(Work work);
  // The stream stands still behind what was submitted, until open_gate().
  void gate(uint32_t stream, uint64_t gate, Work reached);
  void open_gate(uint64_t gate);

 private:
  struct Piece {
    Work work;
    uint64_t sequence = 0;
    std::vector<Mark> after;
    uint64_t gate = 0;  // 0: none.
    uint64_t size_bytes = 0;
  };
  struct Stream {
    std::thread thread;
    std::deque<Piece> queue;  // The front one may be running.
    uint64_t submitted = 0;
    uint64_t completed = 0;
    bool non_blocking = false;
    std::vector<Mark> next_after;  // Of its next piece.
    std::condition_variable changed;
  };

  static constexpr uint32_t kFences = 1u << 30;    // Numbers of the streams that run fences, and
  static constexpr uint32_t kWatchers = 1u << 29;  // of those that call after().
  Stream& stream_of(uint32_t number);              // Under mutex_.
  Mark submit_locked(uint32_t number, Piece piece, std::unique_lock<std::mutex>& lock);
  void add_legacy_order(uint32_t number, Piece& piece);
  [[nodiscard]] bool is_done(const Mark& mark) const;
  [[nodiscard]] bool is_ready(const Piece& piece) const;
  void run(Stream& stream);
  void wake_all();

  std::mutex mutex_;  // Guards what follows.
  std::map<uint32_t, std::unique_ptr<Stream>> streams_;
  std::map<uint32_t, Mark> fences_;      // The last one of each device.
  std::unordered_set<uint64_t> opened_;  // Before their stream got there.
  size_t gates_closed_ = 0;
  uint64_t queued_size_bytes_ = 0;
  std::condition_variable room_;
  bool closing_ = false;
};

}  // namespace rgpu::server::cuda
