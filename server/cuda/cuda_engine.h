// CudaEngine: decodes the batches of a CUDA session and gives their calls to a driver.
//
// Threading: as server/engine.h says of an Engine.
// Lifetime:  the driver is the engine's; its callbacks end with it.
// Errors:    what a correct client cannot have sent ends the session. What CUDA refuses is latched,
//            the first failure only, and told with the next reply; failures that spoil a context
//            are told with every reply from then on.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/cuda/driver.h"
#include "server/engine.h"
#include "server/progress.h"
#include "server/worker_context.h"

namespace rgpu::server::cuda {

// What was said since the last reply: the first failure, and what kernels printed.
class Latch {
 public:
  static constexpr size_t kTextSizeBytesMax = size_t{1} << 20;  // As CUDA's; the newest is dropped.

  void fail(const Outcome& outcome);
  void print(std::string_view text);
  // Fills the head of a reply's values; `own` is the request's own outcome.
  void take(const Outcome& own, wire::Reply& reply);

 private:
  std::mutex mutex_;
  Outcome first_;
  Outcome sticky_;
  std::string text_;
  bool text_dropped_ = false;
};

class CudaEngine final : public Engine {
 public:
  using DriverFactory = std::function<Result<std::unique_ptr<Driver>>()>;
  CudaEngine(const EngineContext& context, DriverFactory make_driver);
  ~CudaEngine() override;

  [[nodiscard]] const EngineInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Status greet(const wire::Hello& hello) override;
  [[nodiscard]] Result<Segment> allocate_segment(uint64_t size_bytes) override;
  void apply(std::unique_ptr<IncomingBatch> batch) override;

 private:
  struct Pending;  // One batch: what its calls still owe.
  struct Buffer {
    std::vector<std::byte> bytes;
    std::shared_ptr<void> owner;
    std::span<const std::byte> filled;
  };

  [[nodiscard]] Status decode(IncomingBatch& batch);
  [[nodiscard]] Status command(IncomingBatch& batch, wire::Command command);
  [[nodiscard]] Status call(IncomingBatch& batch, wire::cuda::Call call);
  [[nodiscard]] Status upload(IncomingBatch& batch, wire::Handle target, uint64_t storage_size,
                              uint64_t offset, uint64_t size);
  [[nodiscard]] Status set_stream(uint32_t stream);
  [[nodiscard]] Status free(wire::Handle handle);
  [[nodiscard]] Result<Bytes> take_buffer(uint64_t number);

  // The calls, by families.
  [[nodiscard]] Status module_call(wire::cuda::Call call, std::span<const std::byte> bytes);
  [[nodiscard]] Status memory_call(wire::cuda::Call call, std::span<const std::byte> bytes);
  [[nodiscard]] Status stream_call(wire::cuda::Call call, std::span<const std::byte> bytes);
  [[nodiscard]] Status launch(std::span<const std::byte> bytes);

  void note(const Outcome& outcome);
  // Answers now, or later from a driver's thread.
  void answer(uint64_t request, const Outcome& outcome, std::span<const int64_t> results = {},
              Bytes payload = {});
  [[nodiscard]] Driver::Callback answer_to(uint64_t request);

  const EngineContext context_;
  const DriverFactory make_driver_;
  EngineInfo info_;
  Latch latch_;
  Progress progress_;
  std::unique_ptr<Driver> driver_;
  // The decode thread's.
  std::unordered_map<uint64_t, Buffer> buffers_;
  uint64_t buffers_size_bytes_ = 0;
  std::unordered_map<uint64_t, bool> events_;  // Those that were recorded.
  uint64_t sequence_ = 0;                      // Of the batch being decoded.
  uint32_t stream_ = 0;
  uint32_t device_count_ = 0;
  size_t next_segment_ = 0;
  bool ended_ = false;
};

}  // namespace rgpu::server::cuda
