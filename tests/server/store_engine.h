// StoreEngine: an engine without PyTorch, so that a session can be tested and measured by itself.
//
// It keeps what is uploaded under its handle and answers kFetch and kSync; kFree forgets. kResize
// aborts the process, as an op may. It runs no ops.
//
// Threading: as Engine says.
#pragma once

#include <memory>
#include <unordered_map>

#include "server/engine.h"
#include "server/worker_context.h"

namespace rgpu::server::testing {

class StoreEngine final : public Engine {
 public:
  explicit StoreEngine(const EngineContext& context) : context_(context) {}
  [[nodiscard]] const EngineInfo& info() const noexcept override { return info_; }
  [[nodiscard]] Status greet(const wire::Hello&) override { return {}; }
  [[nodiscard]] Result<Segment> allocate_segment(uint64_t size_bytes) override;
  void apply(std::unique_ptr<IncomingBatch> batch) override;

 private:
  [[nodiscard]] Status run(IncomingBatch& batch, std::vector<OutgoingReply>& replies);

  const EngineContext context_;
  const EngineInfo info_{"none", "store", {}};
  std::unordered_map<wire::Handle, Segment> segments_;
};

}  // namespace rgpu::server::testing
