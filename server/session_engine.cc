#include "server/session_engine.h"

#include <exception>
#include <utility>

namespace rgpu::server {
namespace {

class SessionEngine final : public Engine {
 public:
  SessionEngine(const EngineFactories& factories, const EngineContext& context)
      : factories_(factories), context_(context) {}

  [[nodiscard]] const EngineInfo& info() const noexcept override {
    static const EngineInfo kNone;
    return engine_ ? engine_->info() : kNone;
  }
  [[nodiscard]] Status greet(const wire::Hello& hello) override {
    const EngineFactory& make = hello.cuda ? factories_.cuda : factories_.ops;
    if (!make) {
      return {Code::kUnimplemented, hello.cuda ? "this server runs no CUDA programs (--cuda none)"
                                               : "this server was built without PyTorch"};
    }
    try {
      engine_ = make(context_);
      return engine_->greet(hello);
    } catch (const std::exception& error) {
      return {Code::kExhausted, error.what()};
    }
  }
  [[nodiscard]] Result<Segment> allocate_segment(uint64_t size_bytes) override {
    return engine_->allocate_segment(size_bytes);
  }
  void apply(std::unique_ptr<IncomingBatch> batch) override { engine_->apply(std::move(batch)); }

 private:
  const EngineFactories factories_;
  const EngineContext context_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Engine> make_session_engine(const EngineFactories& factories,
                                            const EngineContext& context) {
  return std::make_unique<SessionEngine>(factories, context);
}

}  // namespace rgpu::server
