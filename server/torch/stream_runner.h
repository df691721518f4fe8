// StreamRunner: executes the decoded records of one stream. TorchRun: some of them, in order.
//
// Threading: one runner a stream; the thread that executes the stream's runs uses it.
// Lifetime:  a run keeps its batch's bytes and its slots; each slot is let go right after the
// record
//            that used it, so that a freed tensor's memory returns in the middle of a long run.
// Errors:    reported to the EngineSink; after the first, what is left of the session is skipped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/engine.h"
#include "server/executor.h"
#include "server/progress.h"
#include "server/torch/device_events.h"
#include "server/torch/engine_state.h"
#include "server/torch/op_launch.h"
#include "wire/batch.h"
#include "wire/stream.h"

namespace rgpu::server {

// A record with its handles resolved.
struct Step {
  wire::Command command{};  // When `plan` is null.
  uint32_t location = 0;
  uint64_t record = 0;  // As wire::TraceEvent counts.
  const OpPlan* plan = nullptr;
  uint32_t handles_begin = 0;  // In TorchRun::handles.
  bool has_handle = false;     // Of a command.
  uint32_t segment = 0;        // Of kUpload.
  bool is_new = false;         // Of kUpload: the handle is.
  const std::byte* immediates = nullptr;
};

using OpPlans = std::vector<std::unique_ptr<const OpPlan>>;

class StreamRunner;

class TorchRun final : public Run {
 public:
  void execute() override;

  StreamRunner* runner = nullptr;
  std::shared_ptr<IncomingBatch> batch;
  std::shared_ptr<const OpPlans> plans;  // What `steps` point into.
  std::vector<Step> steps;
  std::vector<SlotPtr> handles;
};

class StreamRunner {
 public:
  // `device_events` is null where a step is done when it returns.
  StreamRunner(EngineState& state, Progress& progress, DeviceEvents* device_events, uint32_t stream)
      : state_(state),
        progress_(progress),
        device_events_(device_events),
        stream_(stream),
        device_(state.device(wire::device_of_stream(stream))),
        ledger_(state.ledger_of(stream)),
        launcher_(state, stream) {}
  void execute(TorchRun& run);

 private:
  [[nodiscard]] Status execute(const Step& step, TorchRun& run);
  [[nodiscard]] Status execute_traced(const Step& step, TorchRun& run);
  [[nodiscard]] Status command(const Step& step, TorchRun& run);
  void allocate(const Step& step, Slot& slot);
  void resize(const Step& step, Slot& slot);
  [[nodiscard]] Status upload(const Step& step, Slot& slot, Segment& segment);
  [[nodiscard]] Status fetch(const Step& step, const SlotPtr& slot);
  // Of everything, or of this stream.
  void sync(const Step& step);
  void record_event(Slot& slot);
  void stop_trace(const Step& step, Slot& slot);
  void reply_value(uint64_t request, int64_t value);
  [[nodiscard]] Status memory(const Step& step);
  void reply(wire::Reply reply) { replies_.push_back({std::move(reply), {}, nullptr}); }
  void reply_error(uint64_t request, const PoisonPtr& poison);
  void reply_failed(uint64_t request, wire::RemoteError error);
  // Instead of what was asked for: an earlier op's error that nobody could hear of otherwise.
  [[nodiscard]] bool reply_lost(uint64_t request);

  EngineState& state_;
  Progress& progress_;
  DeviceEvents* const device_events_;
  const uint32_t stream_;
  const c10::Device device_;
  MemoryLedger& ledger_;
  OpLauncher launcher_;
  std::vector<OutgoingReply> replies_;
};

}  // namespace rgpu::server
