// ModelEngine: an engine without PyTorch that runs streams, events and two simple ops for real.
//
// Storages are vectors of u64. Every record is a run of its own on its stream's thread; runs that
// share a storage are ordered as they were decoded, all others only by their stream and by events.
//   model::axpy  handles x, y, out; immediates k:  out = k * x + y, elementwise; out is made
//   model::add_  handles x; immediates k:          x += k
//
// Threading: as Engine says.
// Errors:    what a correct client cannot have sent ends the session.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "server/engine.h"
#include "server/event_mark.h"
#include "server/progress.h"
#include "server/thread_executor.h"
#include "server/worker_context.h"
#include "wire/op_template.h"

namespace rgpu::testing {

class ModelEngine final : public server::Engine {
 public:
  explicit ModelEngine(const server::EngineContext& context);
  ~ModelEngine() override;
  [[nodiscard]] const server::EngineInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Status greet(const wire::Hello&) override { return {}; }
  [[nodiscard]] Result<server::Segment> allocate_segment(uint64_t size_bytes) override;
  void apply(std::unique_ptr<server::IncomingBatch> batch) override;

 private:
  struct Cell {
    std::vector<uint64_t> words;
    std::map<uint32_t, uint64_t> last_run;  // By stream. Decode thread's.
    std::shared_ptr<server::EventMark> event;
  };
  using CellPtr = std::shared_ptr<Cell>;
  struct RecordRun;
  struct Record;

  void decode(const server::IncomingBatch& batch);
  void submit(const Record& record, const server::Segment& segment);
  void wait_for_event(const Record& record);
  void query_event(const Record& record);
  [[nodiscard]] std::vector<CellPtr> cells_of(const Record& record);

  const server::EngineContext context_;
  const server::EngineInfo info_{"none", "model", {}};
  server::Progress progress_;
  std::vector<wire::OpTemplate> templates_;
  std::map<wire::Handle, CellPtr> cells_;
  uint64_t sequence_ = 0;  // Of the batch being decoded.
  uint32_t stream_ = 0;
  uint64_t last_run_id_ = 0;
  std::vector<server::Run::After> after_;  // Of the stream's next run.
  std::unique_ptr<server::ThreadExecutor> executor_;
};

}  // namespace rgpu::testing
