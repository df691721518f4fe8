// EngineContext: what a worker gives the engine that it makes; all of it outlives the engine.
#pragma once

#include <functional>
#include <memory>

#include "server/engine.h"
#include "server/work_clock.h"

namespace rgpu::server {

struct EngineContext {
  EngineSink& sink;
  WorkClock& clock;
};
using EngineFactory = std::function<std::unique_ptr<Engine>(const EngineContext&)>;

}  // namespace rgpu::server
