// SessionEngine: the engine that a session's Hello asks for: PyTorch's ops, or CUDA's calls.
//
// Threading, lifetime: as server/engine.h says. The engine inside is made by greet().
// Errors:    greet() refuses what this server was not built or started for.
#pragma once

#include <memory>

#include "server/worker_context.h"

namespace rgpu::server {

struct EngineFactories {
  EngineFactory ops;   // Empty: built without PyTorch.
  EngineFactory cuda;  // Empty: started with --cuda none.
};
[[nodiscard]] std::unique_ptr<Engine> make_session_engine(const EngineFactories& factories,
                                                          const EngineContext& context);

}  // namespace rgpu::server
