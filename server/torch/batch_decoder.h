// BatchDecoder: records to steps. All that must happen in session order happens here: templates are
// defined and forgotten, handles are defined, looked up and freed, streams change.
//
// Threading: the decode thread's alone.
// Errors:    what a correct client cannot have sent ends the session, through the EngineSink.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/executor.h"
#include "server/progress.h"
#include "server/queued_bytes.h"
#include "server/torch/engine_state.h"
#include "server/torch/geometry.h"
#include "server/torch/handle_table.h"
#include "server/torch/stream_runner.h"

namespace rgpu::server {

class BatchDecoder {
 public:
  BatchDecoder(EngineState& state, Executor& executor);
  void decode(std::unique_ptr<IncomingBatch> batch);

 private:
  [[nodiscard]] Status decode_records(IncomingBatch& batch);
  [[nodiscard]] Status define_templates(wire::BatchReader& reader);
  [[nodiscard]] Status decode_record(IncomingBatch& batch, wire::BatchReader::Record record);
  [[nodiscard]] Status decode_op(wire::BatchReader& reader, uint32_t number, Step& step);
  [[nodiscard]] Status decode_command(IncomingBatch& batch, uint32_t number, Step& step);
  [[nodiscard]] Status decode_stream(const Step& step);
  [[nodiscard]] Status decode_switches(const Step& step);
  [[nodiscard]] Status decode_event(wire::Handle handle, Step& step);
  [[nodiscard]] Status record_event(wire::Handle handle);
  [[nodiscard]] Status query_event(EventMark& mark, const Step& step);
  [[nodiscard]] Status resolve_command_handle(wire::Handle handle, Step& step);
  [[nodiscard]] Status add_new_handle(wire::Handle handle);
  // The run being filled uses `slot`: notes which runs of other streams must be done before.
  void note_use(Slot& slot, bool writes);
  void run_after(const Slot::Use& use);
  // Fails for a stream of a device that is not there.
  [[nodiscard]] Status set_stream(uint32_t stream);
  [[nodiscard]] DeviceEvents* device_events();  // Of the stream's device; null on the CPU.
  void end_session(const Status& reason, uint64_t sequence);
  void start_run();
  void submit_run(bool is_last);
  void cut_run();  // What follows in the batch is another run.
  void drain();    // And everything before it has executed.

  EngineState& state_;
  Executor& executor_;
  GeometryTable geometries_;
  HandleTable handles_;
  std::shared_ptr<OpPlans> plans_ = std::make_shared<OpPlans>();
  Progress progress_;
  std::map<uint32_t, std::unique_ptr<DeviceEvents>> device_events_;  // By an accelerator's index.
  QueuedBytes queued_bytes_;
  std::unordered_map<uint32_t, std::unique_ptr<StreamRunner>> runners_;
  std::shared_ptr<IncomingBatch> batch_;  // The one being decoded,
  std::unique_ptr<TorchRun> run_;         // and its run being filled.
  std::vector<wire::Handle> record_handles_;
  uint32_t stream_ = 0;
  // Uses are noted only from the moment a second stream is used. What ran before did so on
  // `first_stream_`, up to `untracked_run_id_`, which every other stream has to wait for.
  bool several_streams_ = false;
  uint32_t first_stream_ = 0;
  uint64_t untracked_run_id_ = 0;
  uint32_t next_segment_ = 0;
  uint64_t records_ = 0;  // As wire::TraceEvent counts.
  uint64_t last_run_id_ = 0;
};

}  // namespace rgpu::server
